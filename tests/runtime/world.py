"""A whole service on fakes: one store, one hub, an API, and as many workers as a test wants."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.core.events import Event, Limits, Policy
from app.core.evolve import fold
from app.core.state import State
from app.runtime.catalog import Catalog
from app.runtime.execution.calls import AnswerReader
from app.runtime.execution.desk import Desk
from app.runtime.execution.lease import Lease
from app.runtime.execution.perform import Performer
from app.runtime.execution.recovery import Recovery
from app.runtime.execution.worker import Worker, WorkerOptions
from app.runtime.execution.writer import JournalWriter
from app.runtime.past import Past
from app.runtime.ports.keys import SessionCipher
from app.runtime.sealing import Sealer
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.answers import Answers
from app.runtime.sessions.approvals import Approvals
from app.runtime.sessions.creation import Creation, Wanted
from app.runtime.sessions.forks import Forks
from app.runtime.sessions.idempotency import Answer
from app.runtime.sessions.results import Bounds
from app.runtime.sessions.verbs import Sessions
from app.runtime.streams.follow import Follower
from app.runtime.streams.frames import Frame
from app.runtime.views import session_json
from app.storage.codec import JsonCodec
from app.storage.keys import MasterKeys
from tests.fakes.clock import LoopClock
from tests.fakes.interposed import Between, interposed
from tests.fakes.live import MemoryHot, MemoryHub
from tests.fakes.models import ScriptedModel
from tests.fakes.scripted_tools import SPECS, FewTools, JsonArguments, ScriptedTools
from tests.fakes.small import KeepingObserver, OnePrompt, QuarterTokens, as_it_is
from tests.fakes.store import MemoryStore

TENANT = "default"
LEASE_S = 15.0


@dataclass
class Node:
    """One worker process."""

    worker: Worker
    desk: Desk
    clock: LoopClock
    observer: KeepingObserver
    task: asyncio.Task[None] | None = None


async def plainly(_name: str, call: object) -> object:
    """Put nothing between a port and its user."""
    return await call()  # type: ignore[operator]


class World:
    """The service; `world.store` and its like are what all processes share."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.codec = JsonCodec()
        self.keyring = MasterKeys({"k1": b"k" * 32})
        self.store = MemoryStore(self.clock)
        self.hub = MemoryHub()
        self.hot = MemoryHot()
        self.model = ScriptedModel()
        self.tools = ScriptedTools()
        self.toolstore = FewTools(*SPECS)
        self.pure: frozenset[str] = frozenset()
        self.limits = Limits()
        self.follower = Follower(journal=self.store, hub=self.hub, clock=self.clock)
        self.admission = Admission(workers=self.store, clock=self.clock, most=10_000)
        self.creation = Creation(
            clock=self.clock,
            codec=self.codec,
            keyring=self.keyring,
            store=self.store,
            hub=self.hub,
            models=self.model,
            catalog=self._catalog(self.clock),
            prompts=OnePrompt(),
            tokens=QuarterTokens(),
            limits=self.limits,
            admission=self.admission,
            sample=lambda _trace: True,
            trace_url=lambda _trace: None,
        )
        self.sessions = Sessions(
            clock=self.clock,
            keyring=self.keyring,
            store=self.store,
            workers=self.store,
            hub=self.hub,
            follower=self.follower,
            models=self.model,
            tokens=QuarterTokens(),
            lease_s=LEASE_S,
            admission=self.admission,
            trace_url=lambda _trace: None,
        )
        self.past = Past(clock=self.clock, codec=self.codec, journal=self.store)
        self.answers = Answers(
            clock=self.clock,
            sessions=self.sessions,
            past=self.past,
            catalog=self._catalog(self.clock),
            bounds=Bounds(present=as_it_is, tokens=QuarterTokens()),
        )
        self.approvals = Approvals(
            clock=self.clock,
            sessions=self.sessions,
            store=self.store,
            catalog=self._catalog(self.clock),
            arguments=JsonArguments(),
            tokens=QuarterTokens(),
            past=self.past,
        )
        self.forks = Forks(
            clock=self.clock,
            sessions=self.sessions,
            creation=self.creation,
            prompts=OnePrompt(),
            tokens=QuarterTokens(),
            past=self.past,
            bounds=Bounds(present=as_it_is, tokens=QuarterTokens()),
            sample=lambda _trace: True,
        )

    def _catalog(self, clock: LoopClock) -> Catalog:
        return Catalog(store=self.toolstore, builtins=(), tokens=QuarterTokens(), clock=clock)

    def node(
        self,
        name: str = "w1",
        *,
        between: Between = plainly,
        lease_s: float = LEASE_S,
        options: WorkerOptions | None = None,
    ) -> Node:
        """Return a worker process which is not running yet."""
        clock, observer = LoopClock(seed=hash(name) % 1000), KeepingObserver()
        store = interposed(self.store, between)
        hub, hot = interposed(self.hub, between), interposed(self.hot, between)
        lease = Lease(clock=clock, lease_s=lease_s)
        performer = Performer(
            clock=clock,
            models=interposed(self.model, between),
            tools=interposed(self.tools, between),
            catalog=Catalog(
                store=interposed(self.toolstore, between),
                builtins=(),
                tokens=QuarterTokens(),
                clock=clock,
            ),
            prompts=OnePrompt(),
            tokens=QuarterTokens(),
            reader=AnswerReader(JsonArguments(), QuarterTokens()),
            observer=observer,
            sample=lambda _trace: True,
            pure=self.pure,
        )
        desk = Desk(
            worker=name,
            clock=clock,
            lease=lease,
            writer=JournalWriter(store=store, clock=clock),
            journal=store,
            sessions=store,
            hub=hub,
            hot=hot,
            performer=performer,
            observer=observer,
        )
        recovery = Recovery(
            codec=self.codec, keyring=self.keyring, journal=store, hot=hot, observer=observer
        )
        worker = Worker(
            desk=desk, workers=store, recovery=recovery, options=options or WorkerOptions()
        )
        return Node(worker, desk, clock, observer)

    @asynccontextmanager
    async def api(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Run what an API process runs; the group ends with the block."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self.follower.run())
            await asyncio.sleep(0)
            try:
                yield group
            finally:
                following.cancel()

    @asynccontextmanager
    async def running(self, *nodes: Node) -> AsyncIterator[asyncio.TaskGroup]:
        """Run an API and these workers; at the end they are drained."""
        nodes = nodes or (self.node(),)
        async with self.api() as group:
            for node in nodes:
                node.task = group.create_task(node.worker.run())
            yield group
            for node in nodes:
                node.worker.drain()

    async def create(self, task: str = "hello", **wanted: object) -> str:
        """Create a session and return its id."""
        answer = await self.creation.create(TENANT, Wanted(task=task, **wanted), None)  # type: ignore[arg-type]
        assert answer.session_id is not None
        return answer.session_id

    async def tell(self, session_id: str, text: str, policy: Policy = Policy.REJECT) -> Answer:
        """Send a message."""
        return await self.sessions.message(TENANT, session_id, text, policy, None)

    def cipher(self, session_id: str) -> SessionCipher:
        return self.keyring.unwrap(session_id, self.store.rows[session_id].new.key)

    def sealer(self, session_id: str) -> Sealer:
        return Sealer(self.codec, self.cipher(session_id))

    def journal(self, session_id: str) -> list[Event]:
        """Return a journal, opened and checked: dense, and chained."""
        cipher = self.cipher(session_id)
        sealer, previous = Sealer(self.codec, cipher), b""
        for n, sealed in enumerate(self.store.events[session_id], start=1):
            assert sealed.seq == n
            assert sealed.hash == cipher.link(sealed.seq, sealed.v, sealed.payload, previous)
            previous = sealed.hash
        assert self.store.rows[session_id].head == len(self.store.events[session_id])
        return [sealer.open(sealed) for sealed in self.store.events[session_id]]

    def types(self, session_id: str) -> list[str]:
        return [event.body.TYPE for event in self.journal(session_id)]

    def state(self, session_id: str) -> State:
        return self.fold(self.journal(session_id))

    def fold(self, events: Sequence[Event]) -> State:
        state = fold(events)
        assert state is not None
        return state

    async def shown(self, session_id: str) -> dict[str, object]:
        """Return a session as a client sees it."""
        row = await self.store.get(TENANT, session_id)
        assert row is not None
        return session_json(row, self.cipher(session_id), lambda _trace: None)

    async def say(self, session_id: str, text: str) -> None:
        """Send a message, whatever the session does."""
        await self.tell(session_id, text, Policy.ENQUEUE)

    async def moment(self, session_id: str, kind: str, times: int = 1) -> None:
        """Wait until the journal holds so many events of this type."""
        async with asyncio.timeout(300):
            while self._count(session_id, kind) < times:
                await self.store.next_append()

    def _count(self, session_id: str, kind: str) -> int:
        return sum(event.type == kind for event in self.store.events[session_id])

    async def until_turn(self, session_id: str, turn: int) -> None:
        """Wait until this turn has ended and nobody owns the session any more."""
        await self.moment(session_id, "turn.ended", turn)
        async with asyncio.timeout(300):
            while self.store.rows[session_id].owner is not None:
                await self.store.next_append()

    async def until(self, session_id: str, *statuses: str, within_s: float = 300.0) -> None:
        """Wait until a session has one of these statuses."""
        async with asyncio.timeout(within_s):
            while (await self.shown(session_id))["status"] not in statuses:
                await self.store.next_append()

    async def frames(self, session_id: str, after: int = 0, **how: bool) -> list[Frame]:
        """Follow a session to its end."""
        follow = self.follower.follow(session_id, self.cipher(session_id), after, **how)
        async with contextlib.aclosing(follow) as frames:
            return [frame async for frame in frames if frame.type]


async def dies(node: Node) -> None:
    """Run a worker until it is killed by what is between it and its ports."""
    loop = asyncio.get_running_loop()  # no group: its death must not end the test
    task = loop.create_task(node.worker.run())
    await asyncio.wait([task], timeout=60)
    assert task.done()
    assert task.exception() is not None


def seqs(frames: list[Frame]) -> list[int]:
    """Return the numbers of the durable events."""
    return [frame.seq for frame in frames if frame.seq is not None]


def data(frame: Frame) -> dict[str, object]:
    """Return what a frame tells."""
    told = json.loads(frame.payload)
    assert isinstance(told, dict)
    return told
