"""Where cases run: a database with processes that stay, beside those which are struck."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from tests.chaos import verdict
from tests.chaos.cases import CALLS, DRAIN, Case, Found
from tests.chaos.effects import Effects
from tests.chaos.reading import PING_S, Listener
from tests.chaos.script import effects_of, name_of, script
from tests.chaos.user import User, whole_session
from tests.integration.client import Client
from tests.integration.process import Process
from tests.integration.stack import Stack, Stacks, bad_lines
from tests.scripted.answers import Answer, held
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.waiting import until

CASE_S: Final = 90.0
LEASE_S: Final = 3.0
WORDS: Final = ("work", "steps", "people", "slow", "last")
API_PATIENCE_S: Final = 10.0
STOPPED_S: Final = 2.5
"""For how long a client waits for a process, and for one that will be stopped."""
LAST_S: Final = 2.0
"""How long after the session a process may come to its point: the last ones lie behind it."""
ENV: Final = {
    "SUREFOOT_TOOL_TIMEOUT_S": "1.5",
    "SUREFOOT_STREAM_PING_S": str(PING_S),
    "SUREFOOT_DRAIN_S": "1",
}


@dataclass(slots=True)
class Outside:
    """The model and the tools, shared by all lanes."""

    effects: Effects = field(default_factory=Effects)
    asked: Counter[str] = field(default_factory=Counter)
    """Requests to the model, by session."""
    holds: dict[tuple[str, int], Hold] = field(default_factory=dict)
    """Where the model waits: by session, and the number of its request."""

    def answer(self, request: Body, n: int) -> Answer:
        """Answer by the script; wait where a case says so."""
        name = name_of(request)
        self.asked[name] += 1
        answer = script(request, n)
        hold = self.holds.get((name, self.asked[name]))
        return answer if hold is None else held(hold, answer)

    def hold(self, case: Case, name: str) -> Hold:
        """Return where the effect waits that a case is about, or its second request."""
        kind, _, rest = case.point.partition(":")
        if kind in {"sent", "done"}:
            return self.effects.hold(kind, f"{name}-{rest}")
        nth = int(rest) if kind == "asked" else 2
        return self.holds.setdefault((name, nth), Hold())


@dataclass(slots=True)
class Lane:
    """A database with an API process that stays. For cases of API processes a worker stays too."""

    stack: Stack
    outside: Outside
    standing: tuple[Process, ...]
    without: tuple[str, ...] = ()
    """Mechanisms that are taken out of the processes which are struck, and of their successors."""

    @property
    def api(self) -> Process:
        """Return the API process that stays."""
        return self.standing[0]

    def faults(self) -> list[str]:
        """Return what the processes that stay have logged and may not."""
        dead = [f"{p.log.name} has ended" for p in self.standing if not p.alive]
        return [*dead, *(line for process in self.standing for line in _logged(process))]

    async def run(self, case: Case, name: str) -> Found:
        """Run a case; whatever goes wrong is in what is found."""
        found = Found(case)
        clock = asyncio.get_running_loop()
        began = clock.time()
        run = _Run(self, case, name, found)
        try:
            async with asyncio.timeout(CASE_S):
                await run.run()
        except Exception as error:  # noqa: BLE001 - each case stands for itself
            found.faults.append(f"{_words(error)}{await run.where()}")
        finally:
            await run.close()
        found.seconds = clock.time() - began
        return found

    async def journal(self, session_id: str) -> verdict.Journal:
        """Return a session's journal as the database has it."""
        connection = await asyncpg.connect(self.stack.dsn)
        try:
            return await verdict.Journal.read(connection, self.stack.keys, session_id)
        finally:
            await connection.close()


class _Run:
    """One case: a victim, its successor, a user and a reader."""

    def __init__(self, lane: Lane, case: Case, name: str, found: Found) -> None:
        self._lane, self._case, self._name, self._found = lane, case, name, found
        self._stack = lane.stack
        self._processes: list[Process] = []
        self._user: User | None = None
        self._listener: Listener | None = None
        self._done = False

    async def run(self) -> None:
        case = self._case
        self._lane.outside.holds[self._name, 1] = Hold()
        if case.from_outside or case.held:
            self._lane.outside.hold(case, self._name)
        victim = await self._start()
        self._user = user = self._talk(victim)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(user))
            striking = group.create_task(self._strike(user, victim))
            await whole_session(user)
            self._done = True
            if not await self._struck(victim):
                striking.cancel()
        await self._end()
        await self._judge(user)

    async def _start(self) -> Process:
        """Start the process that will be struck; it may be so before it is seen to be ready."""
        case, before = self._case, await self._stack.workers()
        victim = await self._stack.start(
            "api" if case.of_api else "worker",
            point=None if case.from_outside else case.point,
            action=case.action,
            ready=False,
            without=self._lane.without,
        )
        self._processes.append(victim)
        if not case.point.startswith("renew:1:"):
            try:
                await self._stack.ready(victim, before)
            except AssertionError:
                if not victim.struck:
                    raise
        return victim

    async def _struck(self, victim: Process) -> bool:
        """Return whether the point was come to; the very last ones come just after the answer."""
        with suppress(TimeoutError):
            await until(lambda: self._found.struck or victim.struck, timeout_s=LAST_S)
        return self._found.struck or (self._case.second is None and victim.struck)

    def _talk(self, victim: Process) -> User:
        effects, stays = self._lane.outside.effects, self._lane.api.url
        if not self._case.of_api:
            return User(self._name, lambda: [stays], lambda: [stays], effects)
        return User(
            self._name,
            lambda: [victim.url, stays],
            lambda: [stays],
            effects,
            patience_s=STOPPED_S if self._case.action == "stop" else API_PATIENCE_S,
        )

    async def _listen(self, user: User) -> None:
        await until(lambda: bool(user.id), timeout_s=CASE_S)
        self._listener = listener = Listener(user.id, user.urls)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            await until(lambda: bool(listener.frames), timeout_s=CASE_S)
            if self._case.point != "asked:1":
                self._lane.outside.holds[self._name, 1].release()

    async def _strike(self, user: User, victim: Process) -> None:
        """Wait until the process is struck; then let another one take over."""
        case = self._case
        await self._harm(victim)
        self._found.struck = case.second is None
        answered = user.answered
        if case.action == "kill":
            await victim.wait()
        elif case.action == "stop":
            await until(lambda: victim.frozen, what="it stands still")
        if case.from_outside or case.held:
            self._lane.outside.hold(case, self._name).release()
        if not case.of_api:
            await self._succeed()
        if case.action == "stop":
            await self._wake(user, victim, answered)

    async def _succeed(self) -> None:
        """Let another worker take over; where it is struck as well, one more after that."""
        second = self._case.second
        successor = await self._stack.start(
            "worker", point=second, ready=second is None, without=self._lane.without
        )
        self._processes.append(successor)
        if second is None:
            return
        await until(lambda: successor.struck or self._done, timeout_s=CASE_S)
        if successor.struck:
            self._found.struck = True
            await successor.wait()
            third = await self._stack.start("worker", without=self._lane.without)
            self._processes.append(third)

    async def _wake(self, user: User, victim: Process, answered: int) -> None:
        """Let a stopped process go on once others have gone on without it.

        In the middle of a call that is when somebody has said what became of it: a call that goes
        out after that is one too many.
        """
        if not self._case.of_api and victim.worker is not None:
            await self._stack.lease_over(victim)
        if self._case.of_api or self._case.port in CALLS:

            def gone_on() -> bool:
                return user.answered > answered or self._done

            await until(gone_on, timeout_s=CASE_S)
        victim.thaw()
        if self._case.port not in DRAIN:
            await self._stack.ready(victim, set())

    async def _harm(self, victim: Process) -> None:
        """Wait for the moment; where it is not in the process itself, strike it from outside."""
        case = self._case
        if case.from_outside or case.port in DRAIN:
            await self._lane.outside.hold(case, self._name).reached()
        if case.from_outside:
            {"kill": victim.kill, "stop": victim.freeze, "term": victim.terminate}[case.action]()
            return
        if case.port in DRAIN:
            victim.terminate()
        await until(lambda: victim.struck, timeout_s=CASE_S)

    async def _end(self) -> None:
        """End the processes of this case as an operator does; none may need to be forced."""
        for process in self._processes:
            process.terminate()
        for n, process in enumerate(self._processes):
            code = await process.wait(CASE_S)
            first, second = n == 0, n == 1 and self._case.second is not None
            killed = second or (first and self._case.action == "kill")
            if code != 0 and not (killed and code < 0):
                self._found.faults.append(f"a {process.role} process ended with {code}")
            self._found.faults += _logged(process)

    async def _judge(self, user: User) -> None:
        """Compare the journal, the tools, the reader, and what was said."""
        outside, found = self._lane.outside, self._found
        journal = await self._lane.journal(user.id)
        expected = effects_of(self._name, WORDS)
        found.faults += verdict.faults_of(journal)
        found.faults += verdict.faults_of_effects(outside.effects, expected, self._name)
        found.faults += verdict.faults_of_sayings(journal, user.said, self._name)
        if self._listener is not None:
            found.faults += verdict.faults_of_reading(self._listener, journal)
        mine = [n for op, n in outside.effects.deliveries.items() if op.startswith(self._name)]
        found.again = sum(mine) - len(mine)
        found.asked_back = user.asked_back

    async def where(self) -> str:
        """Return how far the session came, for what went wrong."""
        if self._user is None or not self._user.id:
            return " (no session)"
        journal = await self._lane.journal(self._user.id)
        last = [event.body.TYPE for event in journal.events[-4:]]
        return f" ({self._user.id}, {self._user.said}, {last}, {dict(journal.row)})"

    async def close(self) -> None:
        """End what is left when something went wrong."""
        if self._user is not None:
            await self._user.close()
        for process in self._processes:
            process.thaw()
            process.kill()
        for process in self._processes:
            await process.wait()


def _logged(process: Process) -> list[str]:
    """Return what a process may not have logged, once."""
    process.checked = False
    return [f"{process.log.name}: {line}" for line in bad_lines(process)]


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_words(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


@asynccontextmanager
async def open_lane(
    stacks: Stacks,
    model: ScriptedModel,
    outside: Outside,
    *,
    worker: bool,
    without: Iterable[str] = (),
) -> AsyncIterator[Lane]:
    """A lane over a new database."""
    async with stacks.open(model=model.base_url, lease_s=LEASE_S, env=ENV) as stack:
        standing = [await stack.start("api")]
        if worker:
            standing.append(await stack.start("worker"))
        client = Client(standing[0].url)
        await client.register(*outside.effects.specs())
        await client.close()
        yield Lane(stack, outside, tuple(standing), tuple(without))


@asynccontextmanager
async def outside_world() -> AsyncIterator[tuple[ScriptedModel, Outside]]:
    """The model and the tools; the model keeps requests that are out of order."""
    outside = Outside()
    async with AsyncExitStack() as held_open:
        await held_open.enter_async_context(outside.effects)
        model = ScriptedModel(outside.answer, strict=False, keep_requests=False)
        yield await held_open.enter_async_context(model), outside
