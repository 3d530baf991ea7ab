"""Cancel, close and erase of what waits for a slot: they need none."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from app.core.events import Policy
from app.runtime.execution.worker import SPARE, WorkerOptions
from app.runtime.refusals import NoWorker
from app.runtime.sessions.erasing import Erasing
from tests.fakes.interposed import Between
from tests.fakes.models import echo
from tests.runtime.world import TENANT, Node, World, plainly

pytestmark = pytest.mark.req("API-8")
T = TypeVar("T")
SOON_S = 1.0
LONG_S = 300.0


def erasing(world: World) -> Erasing:
    return Erasing(clock=world.clock, sessions=world.sessions)


@asynccontextmanager
async def full(world: World, *, slots: int = 1, between: Between = plainly) -> AsyncIterator[Node]:
    """A worker whose slots are all at long model calls."""
    node = world.node(options=WorkerOptions(slots=slots), between=between)
    async with world.running(node):
        world.model.takes_s = LONG_S
        for _ in range(slots):
            await world.moment(await world.create("long"), "model.requested")
        yield node


async def talked(world: World, count: int = 1) -> list[str]:
    """Sessions whose first turn has ended: the next one has yet to begin when it is cancelled."""
    async with world.running():
        sessions = [await world.create() for _ in range(count)]
        for session in sessions:
            await world.until(session, "completed")
    world.model.asked.clear()
    return sessions


async def queued(world: World, talked: list[str], new: int) -> list[str]:
    """Let these wait for their second turn, and some new ones for their first."""
    for session in talked:
        await world.tell(session, "go on")
    return [*talked, *[await world.create() for _ in range(new)]]


async def _soon(world: World, work: Awaitable[T]) -> T:
    began = world.clock.boot_s()
    answer = await work
    assert world.clock.boot_s() - began < SOON_S
    return answer


@pytest.mark.parametrize("turn", [1, 2])
async def test_what_waits_for_a_slot_is_ended_without_one(world: World, turn: int) -> None:
    before = await talked(world, 4) if turn == 2 else []
    async with full(world) as node:
        cancelled, closed, erased, left = await queued(world, before, 4 - len(before))
        answer = await _soon(world, world.sessions.cancel(TENANT, cancelled))
        assert json.loads(answer.body)["status"] == "cancelled"
        answer = await _soon(world, world.sessions.close(TENANT, closed))
        assert json.loads(answer.body)["status"] == "closed"
        await _soon(world, erasing(world).erase(TENANT, erased))
        assert world.store.rows[erased].new.key.wrapped == b""
        assert (await world.shown(left))["status"] == "queued"
        assert node.worker.owned == 1
        assert len(world.model.asked) == 1, "none of them began"
    assert world.types(cancelled).count("turn.ended") == turn
    assert world.types(closed)[-1] == "session.closed"


async def test_a_message_behind_it_stays_in_the_queue(world: World) -> None:
    """Only the end needs no slot: what comes next waits for one, and no claim counts against it."""
    async with full(world):
        session = await world.create("first")
        await world.tell(session, "second", Policy.ENQUEUE)
        answer = await _soon(world, world.sessions.cancel(TENANT, session))
        assert json.loads(answer.body)["status"] in {"queued", "running"}
        await asyncio.sleep(2)
        assert (await world.shown(session))["status"] == "queued"
        assert world.types(session).count("turn.ended") == 1
        assert world.store.rows[session].claims == 0
        assert len(world.model.asked) == 1


async def test_many_at_once_share_a_few_claims(world: World) -> None:
    async with full(world, slots=2) as node:
        sessions = [await world.create() for _ in range(5 * SPARE)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, node.worker.owned)
                await asyncio.sleep(0.0005)

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            for session in sessions:
                group.create_task(world.sessions.cancel(TENANT, session))
            for session in sessions:
                await world.until(session, "cancelled", within_s=3)
            watching.cancel()
        assert 2 < most <= 2 + SPARE
        assert len(world.model.asked) == 2


async def test_a_long_queue_in_motion_delays_no_cancel(world: World) -> None:
    """A slot becomes free now and then, and there is always an older session to take it."""
    world.model.takes_s = 3
    async with world.running(world.node(options=WorkerOptions(slots=1))):
        sessions = [await world.create() for _ in range(20)]
        await world.moment(sessions[2], "model.requested")
        await _soon(world, world.sessions.cancel(TENANT, sessions[-1]))


async def test_cancelled_before_it_began_means_ended(world: World) -> None:
    """Such a turn ends in two appends; the answer waits for the second."""

    async def between(name: str, call: Callable[[], Awaitable[object]]) -> object:
        if name == "append_batch":
            await asyncio.sleep(0.3)
        return await call()

    (session,) = await talked(world)
    async with full(world, between=between):
        await queued(world, [session], 0)
        answer = await world.sessions.cancel(TENANT, session)
        assert json.loads(answer.body)["status"] == "cancelled"
    assert "guard.tripped" in world.types(session), "it was seen before the turn began"
    assert world.types(session).count("turn.ended") == 2


async def test_to_be_told_something_costs_no_place_in_the_queue(world: World) -> None:
    first, second = await world.create("first"), await world.create("second")
    await asyncio.sleep(1)
    await world.say(first, "and this")
    world.model.script, world.model.takes_s = echo, 0.1
    async with world.running(world.node(options=WorkerOptions(slots=1))):
        await world.until(second, "completed")
    began = {s: world.journal(s)[-1].at_us for s in (first, second)}
    assert began[first] < began[second]


async def test_a_worker_that_drains_ends_nothing_more(world: World) -> None:
    async with full(world) as node:
        session = await world.create()
        node.worker.drain()
        with pytest.raises(NoWorker):
            await world.sessions.cancel(TENANT, session)
        assert world.store.rows[session].owner is None
    async with world.running(world.node("w2")):
        await world.until(session, "cancelled")


async def test_without_a_worker_an_erasure_says_what_is_kept(world: World) -> None:
    async with world.api():
        session = await world.create()
        with pytest.raises(NoWorker, match="Nothing is erased yet"):
            await erasing(world).erase(TENANT, session)
        assert world.store.rows[session].new.key.wrapped
    async with world.running():
        await world.until(session, "cancelled")
        await _soon(world, erasing(world).erase(TENANT, session))
        assert world.store.rows[session].new.key.wrapped == b""
