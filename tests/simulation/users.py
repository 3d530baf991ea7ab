"""Simulated users: what they do is a table; what they were promised is held against the service."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.core.events import Policy
from app.runtime.errors import StoreUnavailable
from app.runtime.refusals import KeyInFlight, NoWorker, Refused
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.forks import ForkWanted
from app.runtime.sessions.idempotency import Answer, Attempt
from tests.simulation.cluster import ApiProcess, Cluster
from tests.simulation.loop import SimTask
from tests.simulation.tapes import Tape

TENANT = "default"
PATIENCE_S = 12.0
FOREVER = 1 << 30
_LOST = (StoreUnavailable, ConnectionError, TimeoutError, KeyInFlight, NoWorker)

Ask = Callable[[ApiProcess], Awaitable[Answer]]


@dataclass(eq=False)
class User:
    """One user with one session, and those that were forked from it."""

    cluster: Cluster
    number: int
    acts: list[tuple["Act", int]]
    sessions: list[str] = field(default_factory=list)
    said: int = 0
    forks: int = 0
    schedules: list[tuple[str, str]] = field(default_factory=list)
    """The schedules made, and what each says."""
    done: bool = False
    tapes: list[Tape] = field(default_factory=list)
    playing: list[SimTask[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.cluster.chance.random())

    async def live(self) -> None:
        """Create a session and do things to it."""
        await asyncio.sleep(self.chance.random() * 3)
        await self._create()
        weights = [weight for _, weight in self.acts]
        for _ in range(self.chance.randrange(7)):
            await asyncio.sleep(self.chance.choice((0.0, 0.3, 1.0, 2.5)))
            act = self.chance.choices(self.acts, weights=weights)[0][0]
            session_id = self.chance.choice(self.sessions)
            self.tell(act.__name__, session_id)
            await act(self, session_id)
        self.done = True

    def tell(self, *what: object) -> None:
        """Add a line to the trace."""
        self.cluster.audit.note(f"u{self.number}", *what)

    async def _create(self) -> None:
        until_left = self.chance.random() < 0.25
        wanted = Wanted(
            task=f"u{self.number} begins", on_disconnect="cancel" if until_left else "continue"
        )
        attempt = Attempt.of(TENANT, f"create-{self.number}", "POST", wanted.task.encode())
        answer = await self.ask(lambda api: api.creation.create(TENANT, wanted, attempt))
        assert answer is not None
        self.owns(answer)

    def owns(self, answer: Answer) -> None:
        """Take note of a session that was created, and begin to follow it."""
        session_id = str(json.loads(answer.body)["id"])
        self.sessions.append(session_id)
        self.tell("has", session_id)
        for _ in range(self.chance.choice((1, 1, 2))):
            self.watch(session_id)

    def watch(self, session_id: str) -> None:
        """Begin to follow a session, from its start."""
        tape = Tape(self.cluster, session_id)
        self.tapes.append(tape)
        context = self.cluster.world.context.copy()
        self.playing.append(self.cluster.loop.create_task(tape.play(self.chance), context=context))

    async def ask(self, ask: Ask, *, again: bool = True, most: int = FOREVER) -> Answer | None:
        """Put a request to some API, again as long as no answer comes; None when it is refused."""
        for _ in range(most):
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
        return None

    async def twice(self, ask: Ask) -> int:
        """Put the same request twice at once; return how often it was taken."""
        taken: list[Answer] = []

        async def once() -> None:
            answer = await self.ask(ask)
            if answer is not None:
                taken.append(answer)

        await self.both(once)
        return len(taken)

    async def both(self, once: Callable[[], Awaitable[None]]) -> None:
        """Do something twice at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._one(once))

    async def _one(self, once: Callable[[], Awaitable[None]]) -> None:
        await once()

    def attempt(self, what: str) -> tuple[str, Attempt]:
        """Return a text that nobody else says, and the request under a key of its own."""
        self.said += 1
        text = f"u{self.number} {what} {self.said}"
        return text, Attempt.of(TENANT, text, "POST", text.encode())


Act = Callable[[User, str], Awaitable[None]]


async def says(user: User, session_id: str) -> None:
    """Send a message under any policy there is, again until it is known what became of it."""
    text, attempt = user.attempt("says")
    policy = user.chance.choice(list(Policy))
    answer = await user.ask(
        lambda api: api.sessions.message(TENANT, session_id, text, policy, attempt)
    )
    if answer is not None:
        user.cluster.audit.accepted.append((session_id, text))


async def insists(user: User, session_id: str) -> None:
    """Send the same message twice at once, under one key."""
    text, attempt = user.attempt("insists")
    policy = user.chance.choice((Policy.ENQUEUE, Policy.STEER))
    taken = await user.twice(
        lambda api: api.sessions.message(TENANT, session_id, text, policy, attempt)
    )
    if taken:
        user.cluster.audit.accepted.append((session_id, text))


async def mutters(user: User, session_id: str) -> None:
    """Send a message without a key: if no answer comes, nobody knows."""
    text, _ = user.attempt("mutters")
    answer = await user.ask(
        lambda api: api.sessions.message(TENANT, session_id, text, Policy.ENQUEUE, None),
        again=False,
    )
    if answer is not None:
        user.cluster.audit.accepted.append((session_id, text))


async def resumes(user: User, session_id: str) -> None:
    """Ask for a stopped turn to go on, twice at once."""
    limits: dict[str, object] = {"max_steps": 30, "max_consecutive_errors": 9}
    given = user.chance.choice((limits, limits, None))
    await user.twice(lambda api: api.sessions.resume(TENANT, session_id, given, None))


async def cancels(user: User, session_id: str) -> None:
    """End the turn."""
    await user.ask(lambda api: api.sessions.cancel(TENANT, session_id))


async def closes(user: User, session_id: str) -> None:
    """End the session."""
    await user.ask(lambda api: api.sessions.close(TENANT, session_id))


async def forks(user: User, session_id: str) -> None:
    """Go on from some event in another session."""
    text, attempt = user.attempt("forks")
    head = user.cluster.audit.ledger(session_id).seq
    task = user.chance.choice((None, text))
    wanted = ForkWanted(at_seq=user.chance.randint(1, head), task=task)
    answer = await user.ask(lambda api: api.forks.fork(TENANT, session_id, wanted, attempt))
    if answer is not None:
        user.forks += 1
        user.owns(answer)


async def watches(user: User, session_id: str) -> None:
    """Open one more stream."""
    user.watch(session_id)


ACTS: list[tuple[Act, int]] = [
    (says, 7),
    (insists, 1),
    (mutters, 1),
    (resumes, 5),
    (cancels, 2),
    (closes, 1),
    (forks, 1),
    (watches, 1),
]
"""What users do, and how often; a new use case is a line here."""
