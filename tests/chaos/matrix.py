"""The crash matrix: every point of a run, each with every action, some cases beside each other.

First an unharmed run is recorded: each call of a port it makes is a point. Then each case strikes
one process there. A point that a run does not come to (it took another way) is tried again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from tests.chaos.cases import Case, Found, cases
from tests.chaos.lanes import LEASE_S, Lane, Outside, open_lane, outside_world
from tests.chaos.reading import Listener
from tests.chaos.user import User, whole_session
from tests.integration.points import API, WORKER
from tests.integration.stack import Stacks
from tests.scripted.http import Hold
from tests.waiting import until

TRIES: Final = 3
API_AT_ONCE: Final = 3


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
    """Return the cases: points that two unharmed runs have in common."""
    first, second = await record(stacks), await record(stacks)
    common = set(second.points)
    return cases([p for p in first.points if p in common], min(first.requests, second.requests))


async def run(
    stacks: Stacks, wanted: Iterable[Case], *, lanes: int, told: Callable[[Found], None]
) -> list[Found]:
    """Run cases and return what was found, each told as it comes."""
    left = {True: deque[Case](), False: deque[Case]()}
    for case in wanted:
        left[case.of_api].append(case)
    found: list[Found] = []

    def take(one: Found) -> None:
        found.append(one)
        told(one)

    async with outside_world() as (model, outside), AsyncExitStack() as held:
        async with asyncio.TaskGroup() as group:
            if left[True]:
                lane = await held.enter_async_context(
                    open_lane(stacks, model, outside, worker=True)
                )
                for n in range(API_AT_ONCE):
                    group.create_task(_work(lane, left[True], f"a{n}", take))
            for n in range(min(lanes, len(left[False]))):
                lane = await held.enter_async_context(
                    open_lane(stacks, model, outside, worker=False)
                )
                group.create_task(_work(lane, left[False], f"w{n}", take))
    return found


async def _work(lane: Lane, left: deque[Case], prefix: str, take: Callable[[Found], None]) -> None:
    number = 0
    while left:
        case = left.popleft()
        for _ in range(TRIES):
            number += 1
            found = await lane.run(case, f"{prefix}n{number}")
            if found.struck or found.faults:
                break
        take(found)


__all__ = ["LEASE_S", "Outside", "Recorded", "every_case", "record", "run"]
