"""What a worker says of itself, how soon it renews again, and what it forgets."""

import asyncio

import pytest

from app.runtime.errors import StoreUnavailable
from app.runtime.execution.poison import MOST_CLAIMS
from app.runtime.ports.models import ModelReply, ModelRequest
from tests.fakes.interposed import Faults
from tests.runtime.scripts import faulty, weather
from tests.runtime.world import LEASE_S, World


async def test_a_worker_is_healthy_with_a_fresh_lease_and_a_loop_that_keeps_up(
    world: World,
) -> None:
    node = world.node()

    def healthy(lag_s: float) -> bool:
        node.worker.lag_s = lag_s
        return node.worker.healthy

    assert node.worker.lag_s == 0
    assert not healthy(0), "no lease yet"
    async with world.running(node):
        await asyncio.sleep(1)
        assert node.worker.lag_s == 0
        assert [healthy(s) for s in (0, LEASE_S / 3 - 0.01, LEASE_S / 3)] == [True, True, False]
        node.clock.stop(LEASE_S)
        assert not healthy(0)


async def test_a_renewal_that_failed_is_made_again_soon(world: World) -> None:
    """After an outage others would take the sessions for lost."""
    faults = Faults()
    node = world.node(between=faults)
    async with world.running(node):
        await asyncio.sleep(0.1)
        faults.before["renew"] = [StoreUnavailable("away")] * 3
        faults.calls.clear()
        await asyncio.sleep(LEASE_S / 3 + 2)
        assert faults.calls.count("renew") == 4
        await asyncio.sleep(LEASE_S / 3)
        assert faults.calls.count("renew") == 5


async def test_what_waits_for_a_fresh_lease_is_not_begun_in_a_drain(world: World) -> None:
    """Else a drain would wait for an effect that was begun after it."""
    faults = Faults()
    world.model.script, world.model.takes_s = weather, LEASE_S * 2 / 3
    node = world.node(between=faults)
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.requested")
        faults.before["renew"] = [StoreUnavailable("away")] * 1000
        await world.moment(session, "tool.intended")
        await asyncio.sleep(0.1)
        node.worker.drain()
        await asyncio.sleep(0.1)
        faults.before["renew"].clear()
    assert world.store.rows[session].owner is None
    assert not world.tools.delivered
    async with world.running():
        await world.until(session, "completed")


@pytest.mark.case("C073")
async def test_a_crash_is_told_with_its_session_and_leaves_nothing_behind(world: World) -> None:
    world.model.script = faulty
    node = world.node()
    async with world.running(node):
        good, bad = await world.create("good"), await world.create("bad")
        await world.until(good, "completed")
        await world.until(bad, "failed")
        await asyncio.sleep(1)
        assert node.worker.owned == 0
        assert node.worker._drivers == {}  # noqa: SLF001 - nothing else shows that it grows
    crashes = node.observer.said("session.crashed")
    assert [crash["session_id"] for crash in crashes] == [bad] * MOST_CLAIMS
    assert [told["session_id"] for told in node.observer.said("session.poison")] == [bad]


@pytest.mark.case("C073")
async def test_a_crash_while_draining_is_counted_all_the_same(world: World) -> None:
    """Else a session that kills its owners would pass through a rolling restart for ever."""
    node = world.node()

    def script(_request: ModelRequest) -> ModelReply:
        node.worker.drain()
        raise RuntimeError("an adapter's bug")

    world.model.script = script
    async with world.running(node):
        session = await world.create("bad")
        await asyncio.sleep(2)
    assert len(node.observer.said("session.crashed")) == 1
    row = world.store.rows[session]
    assert (row.owner, row.claims) == (None, 1)


@pytest.mark.case("C075")
async def test_claims_whose_answers_were_lost_are_not_counted_against_the_session(
    world: World,
) -> None:
    faults = Faults()
    session = await world.create()
    faults.after["claim"] = [StoreUnavailable("away") for _ in range(2 * MOST_CLAIMS)]
    async with world.running(world.node(between=faults)):
        await world.until(session, "completed")
    assert faults.calls.count("give_up") >= MOST_CLAIMS
