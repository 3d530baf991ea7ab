"""Simulated users: what they do is a table; what they were promised is held against the service."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from app.core.events import Policy
from app.runtime.creation import Wanted
from app.runtime.errors import StoreUnavailable
from app.runtime.frames import Frame
from app.runtime.idempotency import Answer, Attempt
from app.runtime.refusals import KeyInFlight, Refused
from app.runtime.sessions import Sessions
from app.runtime.views import pending_calls
from tests.simulation.cluster import ApiProcess, Cluster
from tests.simulation.loop import SimTask
from tests.simulation.small import LinkedCipher

TENANT = "default"
PATIENCE_S = 12.0
SILENCE_S = 8.0
PROMPT_S = 1.0
_LOST = (StoreUnavailable, ConnectionError, TimeoutError, KeyInFlight)

Ask = Callable[[ApiProcess], Awaitable[Answer]]


@dataclass(eq=False)
class User:
    """One user with one session."""

    cluster: Cluster
    number: int
    session_id: str = ""
    said: int = 0
    done: bool = False
    tapes: list["Tape"] = field(default_factory=list)
    playing: list[SimTask[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.cluster.chance.random())

    async def live(self) -> None:
        """Create a session and do things to it."""
        await asyncio.sleep(self.chance.random() * 3)
        await self._create()
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(self.chance.choice((0.0, 0.3, 1.0, 2.5)))
            act = self.chance.choices(ACTS, weights=WEIGHTS)[0]
            self.cluster.audit.note(f"u{self.number}", act.__name__, self.session_id)
            await act(self)
        self.done = True

    async def _create(self) -> None:
        wanted = Wanted(task=f"u{self.number} begins")
        key = f"create-{self.number}"
        attempt = Attempt.of(TENANT, key, "POST /v1/sessions", wanted.task.encode())
        answer = await self.ask(lambda api: api.creation.create(TENANT, wanted, attempt))
        assert answer is not None
        assert answer.status == 201
        found = [
            i for i, row in self.cluster.store.rows.items() if answer.body.find(i.encode()) > 0
        ]
        self.session_id = found[0]
        self.cluster.audit.note(f"u{self.number}", "has", self.session_id)
        for _ in range(self.chance.choice((1, 1, 2))):
            self.watch()

    def watch(self) -> None:
        """Begin to follow the session, from its start."""
        tape = Tape(self.cluster, self.session_id)
        self.tapes.append(tape)
        context = self.cluster.world.context.copy()
        self.playing.append(self.cluster.loop.create_task(tape.play(self.chance), context=context))

    async def ask(self, ask: Ask, *, again: bool = True) -> Answer | None:
        """Put a request to some API, again as long as no answer comes; None when it is refused."""
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    api = self.chance.choice(self.cluster.apis)
                    return await api.call(lambda api=api: ask(api))  # type: ignore[misc]
            except _LOST:
                if not again:
                    return None
            except IndexError:
                pass  # no API lives at the moment
            except Refused:
                return None
            await asyncio.sleep(0.2 + self.chance.random())

    def attempt(self, what: str) -> tuple[str, Attempt | None]:
        """Return a text that nobody else says, and the request under a key of its own."""
        self.said += 1
        text = f"u{self.number} {what} {self.said}"
        return text, Attempt.of(TENANT, text, "POST", text.encode())

    async def message(self, policy: Policy) -> None:
        """Say something, again under the same key until it is known what became of it."""
        text, attempt = self.attempt("says")
        answer = await self.ask(
            lambda api: api.sessions.message(TENANT, self.session_id, text, policy, attempt)
        )
        if answer is not None:
            self.cluster.audit.accepted.append((self.session_id, text))


Act = Callable[[User], Awaitable[None]]


async def says(user: User) -> None:
    """Send a message under any policy there is."""
    await user.message(user.chance.choice(list(Policy)))


async def insists(user: User) -> None:
    """Send the same message twice at once, under one key."""
    text, attempt = user.attempt("insists")

    async def once() -> None:
        answer = await user.ask(
            lambda api: api.sessions.message(TENANT, user.session_id, text, Policy.ENQUEUE, attempt)
        )
        if answer is not None:
            user.cluster.audit.accepted.append((user.session_id, text))

    async with asyncio.TaskGroup() as group:
        group.create_task(once())
        group.create_task(once())


async def mutters(user: User) -> None:
    """Send a message without a key: if no answer comes, nobody knows."""
    text, _ = user.attempt("mutters")
    answer = await user.ask(
        lambda api: api.sessions.message(TENANT, user.session_id, text, Policy.ENQUEUE, None),
        again=False,
    )
    if answer is not None:
        user.cluster.audit.accepted.append((user.session_id, text))


async def resumes(user: User) -> None:
    """Ask twice at once for a stopped turn to go on."""
    limits: dict[str, object] = {
        "max_steps": 30,
        "max_consecutive_errors": 9,
        "total_timeout_s": 60.0,
    }

    async def once(given: dict[str, object] | None) -> None:
        await user.ask(
            lambda api: api.sessions.resume(TENANT, user.session_id, given, None), again=False
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(once(limits))
        group.create_task(once(user.chance.choice((limits, None))))


async def cancels(user: User) -> None:
    """End the turn."""
    await user.ask(lambda api: api.sessions.cancel(TENANT, user.session_id))


async def closes(user: User) -> None:
    """End the session."""
    await user.ask(lambda api: api.sessions.close(TENANT, user.session_id))


async def verifies(user: User) -> None:
    """Look whether calls in doubt happened, and tell, twice at once."""
    cluster = user.cluster
    row = await cluster.store.get(TENANT, user.session_id)
    if row is None or row.pending_kind is None:
        return
    for call_id in pending_calls(row, LinkedCipher(row.id)):
        happened = cluster.outside.happened(user.session_id, call_id)
        cluster.audit.note(f"u{user.number}", "finds", call_id, f"happened={happened}")

        async def once(call_id: str = call_id, happened: bool = happened) -> None:  # noqa: FBT001
            def ask(api: ApiProcess) -> Awaitable[Answer]:
                return _verify(api.sessions, user.session_id, call_id, happened=happened)

            await user.ask(ask)

        async with asyncio.TaskGroup() as group:
            group.create_task(once())
            group.create_task(once())


async def _verify(sessions: Sessions, session_id: str, call_id: str, *, happened: bool) -> Answer:
    return await sessions.verify(TENANT, session_id, call_id, None, None, happened=happened)


async def watches(user: User) -> None:
    """Open one more stream."""
    user.watch()


ACTS: list[Act] = [says, insists, mutters, resumes, cancels, closes, verifies, watches]
WEIGHTS: list[int] = [6, 1, 1, 3, 2, 1, 4, 1]
"""The table of what users do, and how often; a new use case is one line in each."""


@dataclass(eq=False)
class Tape:
    """What one reader has seen of a session, over all his connections."""

    cluster: Cluster
    session_id: str
    last: int = 0
    connection: int = 0
    heard_s: float = 0.0

    async def play(self, chance: random.Random) -> None:
        """Follow for ever, connecting again wherever the stream breaks off."""
        while True:
            with contextlib.suppress(IndexError):  # no API lives at the moment
                await self._connect(chance.choice(self.cluster.apis), chance)
            self.connection += 1
            await asyncio.sleep(0.1 + chance.random())

    async def _connect(self, api: ApiProcess, chance: random.Random) -> None:
        patience_s = chance.choice((1.0, 4.0, None, None))
        slow_s = chance.choice((0.0, 0.0, 0.0, 0.05))
        forever = chance.random() < 0.3
        me = self.connection
        self.heard_s = began_s = self.cluster.loop.time()

        async def stream() -> None:
            cipher = LinkedCipher(self.session_id)
            follow = api.follower.follow(self.session_id, cipher, self.last, forever=forever)
            async with aclosing(follow) as frames:
                async for frame in frames:
                    if self.connection != me:
                        return  # nobody is at the other end any more
                    self._take(frame, api, max(began_s, 0.0) if not slow_s else None)
                    if slow_s:
                        await asyncio.sleep(slow_s)

        try:
            async with asyncio.timeout(patience_s), asyncio.TaskGroup() as group:
                watching = group.create_task(self._while_heard())
                await api.call(stream)
                watching.cancel()
        except* _LOST:
            pass  # he connects again

    async def _while_heard(self) -> None:
        """Give a connection up on which nothing comes any more, not even a sign of life."""
        loop = self.cluster.loop
        while loop.time() - self.heard_s < SILENCE_S:  # noqa: ASYNC110 - silence sets no event
            await asyncio.sleep(SILENCE_S / 2)
        raise TimeoutError

    def _take(self, frame: Frame, api: ApiProcess, began_s: float | None) -> None:
        audit = self.cluster.audit
        self.heard_s = self.cluster.loop.time()
        if frame.seq is None:
            return
        ledger = audit.ledger(self.session_id)
        if frame.seq != self.last + 1:
            audit.fail(f"a reader of {self.session_id} got {frame.seq} after {self.last}")
        elif frame.seq > ledger.seq:
            audit.fail(f"a reader of {self.session_id} got {frame.seq} before it was written")
        elif frame.payload != ledger.plain[frame.seq - 1]:
            audit.fail(f"a reader of {self.session_id} got another event {frame.seq}")
        else:
            self._in_time(frame.seq, began_s, ledger.told[frame.seq - 1][0], api)
        self.last = frame.seq

    def _in_time(self, seq: int, began_s: float | None, told_s: float, api: ApiProcess) -> None:
        if began_s is None or not self.cluster.weather.calm or not api.process.undisturbed:
            return
        late_s = self.cluster.loop.time() - max(began_s, told_s)
        if late_s > PROMPT_S:
            what = f"{seq} of {self.session_id} {late_s:.1f} s late"
            self.cluster.audit.fail(f"a reader got {what}, though nothing fails")

    @property
    def complete(self) -> bool:
        return self.last == self.cluster.audit.ledger(self.session_id).seq
