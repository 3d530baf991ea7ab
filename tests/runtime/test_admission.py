"""The bound of the queue: an estimate that costs nothing while nothing waits."""

import asyncio

import pytest

from app.runtime.errors import StoreUnavailable
from app.runtime.refusals import Overloaded
from app.runtime.sessions.admission import Admission
from tests.fakes.interposed import Faults, interposed
from tests.runtime.world import World


@pytest.mark.req("SAFE-5")
async def test_it_refuses_at_the_bound_and_takes_again_once_they_are_claimed(world: World) -> None:
    world.admission._most = 3  # noqa: SLF001 - the world has its own, shared by its use cases
    async with world.api() as group:
        counting = group.create_task(world.admission.run())
        for _ in range(3):
            await world.create()
        with pytest.raises(Overloaded):
            await world.create()
        assert len(world.store.rows) == 3
        worker = world.node().worker
        working = group.create_task(worker.run())
        await asyncio.sleep(2)
        for _ in range(20):  # one after the other, claimed at once: the estimate is counted anew
            await world.create()
            await asyncio.sleep(0.15)
        worker.drain()
        await working
        counting.cancel()


@pytest.mark.req("SAFE-5")
async def test_an_idle_process_asks_nothing(world: World) -> None:
    faults = Faults()
    admission = Admission(workers=interposed(world.store, faults), clock=world.clock, most=3)
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(admission.run())
        await asyncio.sleep(60)
        assert faults.calls == ["queued"]
        admission.took()
        await asyncio.sleep(60)
        assert faults.calls == ["queued"] * 2
        faults.before["queued"] = [StoreUnavailable("away")]
        admission.took()
        await asyncio.sleep(60)
        assert faults.calls == ["queued"] * 4
        counting.cancel()
