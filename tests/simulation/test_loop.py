"""The loop: its order is the seed's, its processes die and stop at an await, time is virtual."""

import asyncio
from collections.abc import Coroutine

import pytest

from tests.simulation.loop import Condition, OutOfTimeError, Process, SeededLoop


def loop_of(seed: int = 1, longest_s: float = 1000.0) -> SeededLoop:
    return SeededLoop(seed, longest_s)  # type: ignore[abstract]


def play(loop: SeededLoop, *work: tuple[Process, Coroutine[object, object, None]]) -> None:
    """Run these to the end of the first, each in its process."""
    tasks = [loop.create_task(what, context=who.context.copy()) for who, what in work]

    async def stop() -> None:
        await asyncio.wait([tasks[0]])
        loop.stopped = True

    last = loop.create_task(stop(), context=work[0][0].context.copy())
    loop.run()
    assert last.done()
    loop.bury([who for who, _ in work])


async def count(to: list[str], name: str, times: int, pause_s: float = 0.0) -> None:
    for n in range(times):
        to.append(f"{name}{n}")
        await asyncio.sleep(pause_s)


def order_of(seed: int) -> list[str]:
    told: list[str] = []
    loop, one, two = loop_of(seed), Process("one"), Process("two")
    play(loop, (one, asyncio_all(told)), (two, count(told, "b", 8)))
    return told


async def asyncio_all(told: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in "acd":
            group.create_task(count(told, name, 8))


def test_the_order_is_that_of_the_seed() -> None:
    orders = [order_of(seed) for seed in range(8)]
    assert orders == [order_of(seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) == 8


def test_a_dead_process_does_nothing_any_more() -> None:
    told: list[str] = []
    loop, watcher, victim = loop_of(), Process("watcher"), Process("victim")

    async def doomed() -> None:
        try:
            await count(told, "v", 10, pause_s=1.0)
        finally:
            told.append("cleaned up")

    def blow() -> None:
        victim.condition = Condition.DEAD

    victim.blow, victim.fuse = blow, 4
    later: list[str] = []

    async def look() -> None:
        await asyncio.sleep(20)
        later.extend(told)

    play(loop, (watcher, look()), (victim, doomed()))
    assert later == ["v0", "v1", "v2"]


def test_a_frozen_process_goes_on_as_it_was_and_finds_that_time_has_passed() -> None:
    told: list[float] = []
    loop, watcher, victim = loop_of(), Process("watcher"), Process("victim")

    async def steady() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            told.append(round(loop.time(), 3))

    async def stop_and_go() -> None:
        await asyncio.sleep(1.5)
        victim.condition = Condition.FROZEN
        await asyncio.sleep(6)
        loop.thaw(victim)
        await asyncio.sleep(5)

    play(loop, (watcher, stop_and_go()), (victim, steady()))
    assert told == [1.0, 7.5, 8.5]


def test_a_run_that_never_ends_is_ended() -> None:
    loop, one = loop_of(longest_s=10), Process("one")
    with pytest.raises(OutOfTimeError):
        play(loop, (one, count([], "a", 1000, pause_s=1.0)))
    loop.bury([one])
