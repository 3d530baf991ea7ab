"""One run: a seed, a build, and what came of it."""

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from app.runtime import past
from app.runtime.execution import copies, recovery, worker, writer
from app.runtime.side import deliveries, firing
from app.runtime.streams import follow
from tests.simulation.build import SOUND, Build
from tests.simulation.cluster import Cluster
from tests.simulation.disasters import disasters
from tests.simulation.last_look import last_look
from tests.simulation.loop import OutOfTimeError
from tests.simulation.people import EVERYTHING, answers
from tests.simulation.users import User

REST_S = 90.0


_SMALL: tuple[tuple[object, str, int], ...] = (
    (copies, "HOT_LEAST", 8),
    (copies, "SNAPSHOT_LEAST", 16),
    (recovery, "SHORT_JOURNAL", 10),
    (recovery, "PAGE", 6),
    (worker, "SHORT_JOURNAL", 10),
    (writer, "MAX_ENTRIES", 2),
    (follow, "PAGE", 5),
    (follow, "MAILBOX", 6),
    (past, "PAGE", 7),
)
"""Bounds so small that a short session meets them."""


_SHORT: tuple[tuple[object, str, object], ...] = (
    (deliveries, "RETRY_S", (0.5, 1.0, 2.0)),
    (firing, "AFTER_FAULT_S", 2.0),
)
"""Waits so short that a run of seconds sees their end."""


@contextmanager
def bounds(seed: int) -> Iterator[None]:
    """Play every third run with small bounds."""
    with ExitStack() as stack:
        for module, name, small in (*_SHORT, *(_SMALL if seed % 3 == 0 else ())):
            stack.enter_context(patch.object(module, name, small))
        yield


@dataclass(frozen=True)
class Outcome:
    """What came of a run: `violation` None when everything held."""

    seed: int
    build: str
    violation: str | None
    weather: str
    virtual_s: float
    steps: int
    sessions: int
    events: Mapping[str, int]
    """How many there were of each type, and of what happened beside the sessions."""
    trace: tuple[tuple[object, ...], ...]

    @property
    def trace_hash(self) -> str:
        """Return a hash that two equal runs have in common."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()

    def told(self) -> str:
        """Return the run for a person to read, and how to play it again."""
        names: dict[str, str] = {}
        lines = [_line(entry, names) for entry in self.trace]
        plant = "" if self.build == "sound" else f" PLANT={self.build}"
        return "\n".join(
            (
                f"seed {self.seed} ({self.build}): {self.violation or 'holds'}",
                f"weather: {self.weather}",
                *lines,
                f"play it again: make simulate SEED={self.seed}{plant}",
            )
        )


def _line(entry: tuple[object, ...], names: dict[str, str]) -> str:
    at_s, who, *what = entry
    words = []
    for word in map(str, what):
        if word.startswith("ses_") and " " not in word:
            words.append(names.setdefault(word, f"s{len(names) + 1}"))
        else:
            words.append(word)
    return f"{at_s:9.3f}  {who!s:<6} {' '.join(words)}"


def simulate(seed: int, build: Build = SOUND) -> Outcome:
    """Play the run of a seed."""
    was_on = gc.isenabled()
    gc.disable()  # what is collected runs at no moment of its own
    try:
        with build.patched(), bounds(seed):
            return _simulate(seed, build)
    finally:
        if was_on:
            gc.enable()


def _simulate(seed: int, build: Build) -> Outcome:
    cluster = Cluster(seed, build)
    weather = str(cluster.weather)
    for _ in range(2):
        cluster.start_worker()
        cluster.start_api()
    context = cluster.world.context
    users = [
        User(cluster, n, EVERYTHING) for n in range(1, 1 + cluster.chance.choice((1, 2, 2, 3)))
    ]
    living = [cluster.loop.create_task(u.live(), context=context.copy()) for u in users]
    striking = cluster.loop.create_task(disasters(cluster), context=context.copy())
    ending = cluster.loop.create_task(_end(cluster, users), context=context.copy())
    late: str | None = None
    try:
        cluster.loop.run()
    except OutOfTimeError as error:
        late = str(error)
    for task in (*living, striking, ending):
        if task.done() and not task.cancelled() and task.exception() is not None:
            cluster.audit.fail(f"the simulation itself failed: {task.exception()!r}")
    if late is not None:
        cluster.audit.fail(late)
    outcome = Outcome(
        seed,
        build.name,
        cluster.audit.violation,
        weather,
        cluster.loop.time(),
        cluster.loop.steps,
        len(cluster.store.rows),
        Counter(e.type for events in cluster.store.events.values() for e in events)
        + cluster.promises.counts,
        tuple(cluster.audit.trace),
    )
    cluster.bury()
    return outcome


async def _end(cluster: Cluster, users: list[User]) -> None:
    """Once nothing fails any more everything comes to rest in bounded time; look at it then."""
    loop = cluster.loop
    while cluster.cleared_s is None:  # noqa: ASYNC110 - the disasters end by themselves
        await asyncio.sleep(0.5)
    while not _over(cluster, users):
        if loop.time() - cluster.cleared_s > REST_S:
            cluster.audit.fail(f"not at rest: {_unrest(cluster, users)}")
            return
        await asyncio.sleep(0.5)
        for user in users:
            if user.done and user.number % 2:
                for session_id in user.sessions:
                    await answers(user, session_id)
    last_look(cluster, users)
    loop.stopped = True


def _over(cluster: Cluster, users: list[User]) -> bool:
    tapes = all(tape.complete for user in users for tape in user.tapes)
    return tapes and all(user.done for user in users) and cluster.at_rest()


def _unrest(cluster: Cluster, users: list[User]) -> str:
    busy = [f"u{user.number} waits for an answer" for user in users if not user.done]
    behind = [
        f"a reader of {tape.session_id} is at {tape.last}"
        for user in users
        for tape in user.tapes
        if not tape.complete
    ]
    rows = [
        f"{i} is {row.facts.status}, owner {row.owner}, head {row.head}"
        for i, row in cluster.store.rows.items()
    ]
    return "; ".join((*cluster.promises.owed(), *busy, *behind, *rows))
