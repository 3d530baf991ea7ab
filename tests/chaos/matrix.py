"""The crash matrix: every point of a run, each with every action, some cases beside each other.

First an unharmed run is recorded: each call of a port it makes is a point. Then each case strikes
one process there. A point that a run does not come to (it took another way) is tried again.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Final

from tests.chaos.cases import Case, Found, cases, twice
from tests.chaos.lanes import Lane, Outside, open_lane, outside_world
from tests.chaos.reading import Listener
from tests.chaos.user import User, whole_session
from tests.integration.points import API, WORKER
from tests.integration.stack import Stacks
from tests.scripted.http import Hold
from tests.waiting import until

RECORDINGS: Final = 2
TRIES: Final = 3
API_AT_ONCE: Final = 3
_NAMES: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an unharmed run passes."""

    points: list[str]
    requests: int


async def record(stacks: Stacks) -> Recorded:
    """Run the session once, unharmed, and return the points it passes."""
    async with (
        outside_world() as (model, outside),
        open_lane(stacks, model, outside, worker=False) as lane,
    ):
        worker = await lane.stack.start("worker", record=WORKER)
        api = await lane.stack.start("api", record=API)
        user = User("record", lambda: [api.url], lambda: [lane.api.url], outside.effects)
        outside.holds["record", 1] = Hold()
        async with asyncio.TaskGroup() as group:
            group.create_task(_listen(user, outside))
            await whole_session(user)
        await user.close()
        return Recorded([*worker.points, *api.points], outside.asked["record"])


async def _listen(user: User, outside: Outside) -> None:
    """Read along, and let the first answer go once the worker knows that somebody reads."""
    await until(lambda: bool(user.id))
    listener = Listener(user.id, user.urls)
    async with asyncio.TaskGroup() as group:
        group.create_task(listener.run())
        await until(lambda: bool(listener.frames))
        outside.holds["record", 1].release()


async def every_case(stacks: Stacks) -> list[Case]:
    """Return the cases: the points of some unharmed runs."""
    runs = [await record(stacks) for _ in range(RECORDINGS)]
    return [*cases([run.points for run in runs], min(run.requests for run in runs)), *twice()]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in each case, and beside them: in the processes that stay, at the model."""

    found: list[Found]
    faults: list[str]


async def run(
    stacks: Stacks,
    wanted: Iterable[Case],
    *,
    lanes: int,
    told: Callable[[Found], None],
    without: Iterable[str] = (),
) -> Outcome:
    """Run cases and return what was found, each told as it comes.

    `without` names mechanisms to take out (`tests.integration.without`): the matrix must find it.
    """
    left = {True: deque[Case](), False: deque[Case]()}
    for case in wanted:
        left[case.of_api].append(case)
    outcome = Outcome([], [])

    def take(one: Found) -> None:
        outcome.found.append(one)
        told(one)

    async with AsyncExitStack() as held, asyncio.TaskGroup() as group:
        model, outside = await held.enter_async_context(outside_world())
        for n in range(min(lanes, len(left[False])) + bool(left[True])):
            of_api = n == 0 and bool(left[True])
            lane = open_lane(stacks, model, outside, worker=of_api, without=without)
            work = _work(lane, left[of_api], take, outcome, at_once=API_AT_ONCE if of_api else 1)
            group.create_task(work)
    outcome.faults.extend(model.violations)
    return outcome


async def _work(
    opened: AbstractAsyncContextManager[Lane],
    left: deque[Case],
    take: Callable[[Found], None],
    outcome: Outcome,
    *,
    at_once: int,
) -> None:
    async with opened as lane:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(_run_all(lane, left, take))
        outcome.faults.extend(lane.faults())


async def _run_all(lane: Lane, left: deque[Case], take: Callable[[Found], None]) -> None:
    while left:
        case = left.popleft()
        found = Found(case)
        for _ in range(TRIES):
            found = await lane.run(case, f"n{next(_NAMES)}")
            if found.struck or found.faults:
                break
        take(found)
