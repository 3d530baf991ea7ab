"""When retention looks, how much it removes at a time; and erasing what does not come to rest."""

import asyncio

import pytest

from app.core.events import Policy
from app.runtime.refusals import Conflict, NotFound, NoWorker
from app.runtime.sessions.erasing import Erasing
from app.runtime.side.retention import LOOK_S, MOST_BATCHES, Keeping, Retention, Waste
from tests.fakes.clock import LoopClock
from tests.fakes.small import KeepingObserver
from tests.runtime.world import TENANT, World

KEEPING = Keeping(sessions_s=60, answers_s=60)


class Heap:
    """A `RetentionStore` with so many batches of sessions to remove."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.looks = 0

    async def waste(self, keeping: Keeping) -> list[Waste]:
        assert keeping is KEEPING
        self.looks += 1
        return [Waste.SESSIONS] if self.batches else []

    async def remove(self, waste: Waste, keeping: Keeping) -> int:
        assert (waste, keeping) == (Waste.SESSIONS, KEEPING)
        if not self.batches:
            return 0
        self.batches -= 1
        return 50 if self.batches else 7


@pytest.mark.req("STATE-9")
async def test_it_looks_once_a_minute_and_works_a_backlog_off() -> None:
    clock, heap, seen = LoopClock(), Heap(MOST_BATCHES + 5), KeepingObserver()
    job = Retention(store=heap, keeping=KEEPING, clock=clock, log=seen.log)
    assert list(await job.due(10)) == ["sessions"]
    assert list(await job.due(10)) == []
    await job.run("sessions")
    assert heap.batches == 5
    assert list(await job.due(10)) == ["sessions"], "there is more"
    await job.run("sessions")
    assert list(await job.due(10)) == []
    clock.stop(LOOK_S)
    assert list(await job.due(10)) == []
    assert heap.looks == 3
    assert [line["count"] for line in seen.said("retention.removed")] == [1000, 207]


@pytest.mark.req("STATE-9")
async def test_erasing_needs_somebody_to_end_the_turn(world: World) -> None:
    erasing = Erasing(clock=world.clock, sessions=world.sessions)
    session_id = await world.create("hello")
    with pytest.raises(NotFound):
        await erasing.erase(TENANT, "ses_none")
    async with world.api():
        with pytest.raises(NoWorker):
            await erasing.erase(TENANT, session_id)
    async with world.running():
        await erasing.erase(TENANT, session_id)
    assert world.store.rows[session_id].new.key.wrapped == b""
    await erasing.erase(TENANT, session_id)
    with pytest.raises(Conflict):
        await world.tell(session_id, "hello?", Policy.ENQUEUE)


async def test_a_session_that_never_rests_is_not_erased(world: World) -> None:
    session_id = await world.create("hello")
    async with world.running():
        await world.until_turn(session_id, 1)
    world.store.rows[session_id].owner = "w9"
    erasing = Erasing(clock=world.clock, sessions=world.sessions)
    with pytest.raises(Conflict):
        async with asyncio.timeout(60):
            await erasing.erase(TENANT, session_id)
    assert world.store.rows[session_id].new.key.wrapped
