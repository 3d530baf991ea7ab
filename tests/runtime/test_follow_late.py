"""Following: an event that comes late, after those that follow it, hides none of them."""

import asyncio
from contextlib import aclosing

import pytest

from app.runtime.ports.live import LiveEvent
from app.runtime.streams.follow import Follower
from tests.runtime.test_follow import Author
from tests.runtime.world import World


@pytest.mark.req("API-3")
async def test_new_events_before_a_late_one_are_not_taken_for_stale(world: World) -> None:
    """Found by the simulation: an owner was stopped between its commit and its publication."""
    author = Author(world)
    session = await author.begin()
    late = author.commit()
    got: list[int | None] = []

    async def read(follower: Follower) -> None:
        follow = follower.follow(session, world.cipher(session), 0, forever=True)
        async with aclosing(follow) as frames:
            async for frame in frames:
                got.append(frame.seq)  # noqa: PERF401 - it is read before the end

    async with world.api() as group:
        reader = group.create_task(read(world.follower))
        await asyncio.sleep(1)
        fresh: list[LiveEvent] = [author.commit(), author.commit("turn.ended")]
        await world.hub.publish([*fresh, late])
        await asyncio.sleep(10)
        reader.cancel()
    assert got == [1, 2, 3, 4, 5]
