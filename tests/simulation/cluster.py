"""The simulated service: workers and APIs as processes over one Postgres and one Redis."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from app.core.events import Limits
from app.runtime.catalog import Catalog
from app.runtime.execution.calls import AnswerReader
from app.runtime.execution.desk import Desk
from app.runtime.execution.perform import Performer
from app.runtime.execution.recovery import Recovery
from app.runtime.execution.worker import Worker, WorkerOptions
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.live import Hub
from app.runtime.ports.sessions import SessionStore
from app.runtime.ports.tools import ToolPort
from app.runtime.ports.workers import WorkerStore
from app.runtime.sessions.audience import Audience
from app.storage.codec import JsonCodec
from tests.fakes.schedules import MemorySchedules
from tests.fakes.scripted_tools import FewTools
from tests.fakes.small import OnePrompt, QuarterTokens
from tests.fakes.webhooks import MemoryWebhooks
from tests.simulation.audit import Audit
from tests.simulation.build import Build
from tests.simulation.cases import LEASE_S, Cases, Place, use_cases
from tests.simulation.endpoints import Endpoints
from tests.simulation.loop import Condition, Process, SeededLoop, SimTask
from tests.simulation.outside import SPECS, Arguments, ModelsPort, Outside, ToolsPort
from tests.simulation.postgres import Connection, Postgres
from tests.simulation.promises import Promises
from tests.simulation.redis import HotPort, HubPort, Redis
from tests.simulation.side import SideJobs, audience_of, side_jobs
from tests.simulation.small import PlainKeyring, SimClock, SimObserver
from tests.simulation.weather import Weather, drawn

T = TypeVar("T")

LONGEST_S = 200.0
DRAIN_S = 2.0
LIMITS = Limits(total_timeout_s=30.0, tool_timeout_s=1.5)


@dataclass(eq=False)
class WorkerProcess:
    """A worker: its process and what runs in it."""

    process: Process
    worker: Worker
    main: SimTask[None]
    side: SideJobs
    beside: SimTask[None]


@dataclass(eq=False, kw_only=True)
class ApiProcess(Cases):
    """An API: the use cases, and what its clients are waiting for."""

    process: Process
    main: SimTask[None]
    audience: Audience
    serving: dict[asyncio.Future[object], SimTask[None]] = field(default_factory=dict)

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Carry out a request of a client, who goes away when this is cancelled.

        Raises:
            ConnectionError: when the process dies meanwhile.

        """
        loop = cast("SeededLoop", asyncio.get_running_loop())
        answer = loop.create_future()
        task = loop.create_task(_serve(work, answer), context=self.process.context.copy())
        self.serving[answer] = task
        try:
            return cast("T", await answer)
        finally:
            del self.serving[answer]
            if self.process.alive and not task.done():
                task.cancel()


async def _serve(work: Callable[[], Awaitable[object]], answer: asyncio.Future[object]) -> None:
    try:
        result = await work()
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets it
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


class Cluster:
    """Everything there is in a run."""

    def __init__(self, seed: int, build: Build) -> None:
        self.seed = seed
        self.build = build
        self.chance = random.Random(seed)
        self.loop = SeededLoop(seed, LONGEST_S)  # type: ignore[abstract]  # what nobody calls
        self.world = Process("world")
        self.weather: Weather = drawn(self.chance)
        self.audit = Audit(self.loop.time, self._stop)
        clock = SimClock(self.loop, random.Random(seed))
        self.store = build.store(clock, way_s=0.0, appended=self.audit.appended)
        self.audit.store = self.store
        self.hooks = self.store.hooks = MemoryWebhooks(clock.now_us)
        self.schedules = MemorySchedules(clock, self.store.take)
        self.postgres = Postgres(self.loop, self.weather, self.store, LEASE_S, self.audit.carried)
        self.redis = Redis(self.loop, self.weather)
        self.outside = Outside(self.loop, self.weather, self.audit)
        self.endpoints = Endpoints(self.outside, self.weather, self.audit)
        self.promises = Promises(self.audit, self.hooks, self.schedules, self.endpoints)
        self.audit.promises = self.promises
        self.keyring = PlainKeyring()
        self.codec = JsonCodec()
        self.toolstore = FewTools(*SPECS)
        self.workers: list[WorkerProcess] = []
        self.leaving: list[WorkerProcess] = []
        self.apis: list[ApiProcess] = []
        self.processes: list[Process] = [self.world]
        self.names = 0
        self.limits = replace(LIMITS, max_steps=self.chance.choice((1, 6, 6, 6)))
        self.approval_ttl_s = self.chance.choice((2.0, 5.0, 1000.0))
        self.cleared_s: float | None = None
        self.ending = asyncio.Event()

    def _stop(self) -> None:
        self.loop.stopped = True

    # --- processes

    def _process(self, kind: str) -> Process:
        self.names += 1
        process = Process(f"{kind}{self.names}")
        self.processes.append(process)
        self.audit.note(process.name, "starts")
        return process

    def _clock(self) -> SimClock:
        skew_s = self.chance.choice((-0.1, 0.0, 0.0, 0.1))
        return SimClock(self.loop, random.Random(self.chance.random()), skew_s)

    def catalog(self, clock: SimClock) -> Catalog:
        """Return the catalog of tools."""
        return Catalog(store=self.toolstore, builtins=(), tokens=QuarterTokens(), clock=clock)

    def _ports(self, process: Process) -> tuple[object, Hub]:
        connection = self.build.connection(Connection(self.postgres), self, process)
        hub = self.build.hub(HubPort(self.redis, process), self, process)
        return connection, cast("Hub", hub)

    def start_worker(self) -> WorkerProcess:
        """Start a worker under a name of its own."""
        process, clock = self._process("w"), self._clock()
        connection, hub = self._ports(process)
        observer = SimObserver(process.name, self.audit)
        tools = self.build.tools(ToolsPort(self.outside, process), self, process)
        hot = HotPort(self.redis)
        performer = Performer(
            clock=clock,
            models=ModelsPort(self.outside, process),
            tools=cast("ToolPort", tools),
            catalog=self.catalog(clock),
            prompts=OnePrompt(),
            tokens=QuarterTokens(),
            reader=AnswerReader(Arguments(), QuarterTokens(), self.approval_ttl_s),
            observer=observer,
            sample=lambda _trace: True,
            pure=frozenset({"add"}),
        )
        journal = cast("JournalStore", connection)
        desk = Desk(
            worker=process.name,
            clock=clock,
            lease=self.build.lease(clock=clock, lease_s=LEASE_S),
            writer=self.build.writer(store=journal, clock=clock),
            journal=journal,
            sessions=cast("SessionStore", connection),
            hub=hub,
            hot=hot,
            performer=performer,
            observer=observer,
        )
        recovery = Recovery(
            codec=self.codec, keyring=self.keyring, journal=journal, hot=hot, observer=observer
        )
        options = WorkerOptions(slots=self.chance.choice((1, 2, 8)), per_tenant=8, drain_s=DRAIN_S)
        worker = Worker(
            desk=desk,
            workers=cast("WorkerStore", connection),
            recovery=recovery,
            options=options,
        )
        main = self.loop.create_task(worker.run(), context=process.context.copy())
        side = side_jobs(Place(self, process, clock, connection, hub))
        beside = self.loop.create_task(side.run(), context=process.context.copy())
        started = WorkerProcess(process, worker, main, side, beside)
        self.workers.append(started)
        return started

    def start_api(self) -> ApiProcess:
        """Start an API."""
        process, clock = self._process("a"), self._clock()
        connection, hub = self._ports(process)
        place = Place(self, process, clock, connection, hub)
        cases = use_cases(place)
        audience = audience_of(place, cases.sessions)

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(cases.follower.run())
                group.create_task(audience.run())

        main = self.loop.create_task(run(), context=process.context.copy())
        api = ApiProcess(process=process, main=main, audience=audience, **vars(cases))
        self.apis.append(api)
        return api

    # --- disasters

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: nothing of it runs any more, its connections break."""
        if not process.alive:
            return
        self.audit.note(process.name, "KILLED")
        process.condition = Condition.DEAD
        process.stopped_at_s = self.loop.time()
        self.postgres.lose(process)
        self.redis.lose(process)
        self.workers = [one for one in self.workers if one.process is not process]
        for api in [one for one in self.apis if one.process is process]:
            self.apis.remove(api)
            for answer in list(api.serving):
                if not answer.done():
                    answer.set_exception(ConnectionError("the process died"))

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process, as SIGSTOP does; it goes on after a while, its memory as it was."""
        if process.condition is not Condition.RUNNING:
            return
        self.audit.note(process.name, f"FROZEN for {seconds:.1f} s")
        process.condition = Condition.FROZEN
        process.stopped_at_s = self.loop.time()
        self.loop.call_later(seconds, self.thaw, process, context=self.world.context)

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on."""
        if process.condition is Condition.FROZEN:
            self.audit.note(process.name, "goes on")
            process.stopped_at_s = self.loop.time()
            self.loop.thaw(process)

    def drain(self, one: WorkerProcess) -> None:
        """Tell a worker to leave (SIGTERM)."""
        self.audit.note(one.process.name, "DRAINS")
        self.workers.remove(one)
        self.leaving.append(one)
        self.loop.call_soon(one.worker.drain, context=one.process.context)
        one.side.stopping = True
        self.loop.call_later(DRAIN_S, one.beside.cancel, context=one.process.context)
        self.loop.call_later(DRAIN_S, self._cut, one, context=self.world.context)

    def _cut(self, one: WorkerProcess) -> None:
        """Note that a drain took longer than it may: what was under way then is not told of."""
        if not one.main.done() and one.process.stopped_at_s is None:
            one.process.stopped_at_s = self.loop.time()

    def heal(self) -> None:
        """Let nothing fail from now on, and everything that was lost come back."""
        self.audit.note("world", "HEALS")
        self.weather.clear()
        self.cleared_s = self.loop.time()
        self.postgres.up = True
        if not self.redis.up:
            self.redis.come_up()
        for process in self.processes:
            process.fuse, process.trap = 0, None
            self.thaw(process)
        while len(self.workers) < 2:
            self.start_worker()
        while len(self.apis) < 2:
            self.start_api()

    # --- the end

    def at_rest(self) -> bool:
        """Return whether no session wants anything, or waits for a person; no worker is busy."""
        there = [one for one in (*self.workers, *self.leaving) if one.process.alive]
        if any(one.worker.owned for one in there):
            return False  # one may be waiting for the answer to its last append
        return not self.promises.owed() and all(
            row.owner is None
            and row.wake_us is None
            and row.inbox_head == row.inbox_seen
            and (row.timer_us is None or row.facts.status == "waiting")
            for row in self.store.rows.values()
        )

    def died_by_themselves(self) -> list[str]:
        """Return the workers whose main task ended with an error."""
        return [
            f"{one.process.name}: {one.main.exception()!r}"
            for one in self.workers
            if one.main.done() and not one.main.cancelled() and one.main.exception()
        ]

    def bury(self) -> None:
        """Take everything down."""
        self.postgres.over = self.redis.over = self.outside.over = True
        self.ending.set()
        with contextlib.suppress(RecursionError):
            self.loop.bury(self.processes)
