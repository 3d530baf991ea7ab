"""The worker: claims, lease, drain, and sessions that go wrong."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.core.events import Event
from app.core.lifecycle import StopReason
from app.core.toolbox import ToolSpec
from app.runtime.errors import StoreUnavailable
from app.runtime.execution.poison import MOST_CLAIMS
from app.runtime.execution.worker import WorkerOptions
from app.runtime.ports.journal import SealedEvent
from app.storage.keys import MasterKeys
from tests.fakes.interposed import Death, Faults
from tests.runtime.scripts import faulty, shop, weather
from tests.runtime.world import LEASE_S, TENANT, World, dies, seqs

AWAY = StoreUnavailable("away")


async def test_a_worker_claims_no_more_than_it_has_slots_for(world: World) -> None:
    world.model.takes_s = 1
    node = world.node(options=WorkerOptions(slots=3))
    most = 0
    async with world.running(node):
        sessions = [await world.create() for _ in range(10)]
        while any(world.store.rows[s].facts.status == "active" for s in sessions):
            owned = [s for s in sessions if world.store.rows[s].owner is not None]
            most = max(most, len(owned), node.worker.owned)
            await asyncio.sleep(0.01)
        assert 3.9 < world.clock.boot_s() < 5  # ten sessions, three at a time, no pause between
    assert most == 3


async def test_one_tenant_may_fill_all_slots_without_waiting_for_a_poll(world: World) -> None:
    world.model.takes_s = 0.5
    sessions = [await world.create() for _ in range(20)]
    node = world.node(options=WorkerOptions(slots=100, per_tenant=4))
    async with world.running(node):
        await asyncio.sleep(0.4)
        assert node.worker.owned == 20
        for session in sessions:
            await world.until(session, "completed")


async def test_an_idle_worker_claims_seldom(world: World) -> None:
    faults = Faults()
    node = world.node(between=faults)
    async with world.running(node):
        session = await world.create()
        await world.until(session, "completed")
        claims = faults.calls.count("claim")
        assert claims <= 3  # at the start, for the nudge, and perhaps a poll
        await asyncio.sleep(10)
        assert faults.calls.count("claim") - claims <= 13  # each second, and after each renewal


@pytest.mark.case("C075")
async def test_a_claim_whose_answer_was_lost_is_given_up(world: World) -> None:
    faults = Faults()
    session = await world.create()
    faults.after["claim"] = [AWAY]
    node = world.node(between=faults)
    async with world.running(node):
        await world.until(session, "completed")
        assert world.clock.boot_s() < 3
    assert world.store.rows[session].epoch == 2
    assert "give_up" in faults.calls


@pytest.mark.req("STATE-4")
@pytest.mark.case("C069")
async def test_a_stopped_worker_gives_its_sessions_up(world: World) -> None:
    world.model.script, world.model.takes_s = shop, 6
    node = world.node()
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.requested")
        await asyncio.sleep(1)
        node.clock.stop(LEASE_S / 3 + 1)
        await asyncio.sleep(0.5)
        assert node.observer.said("worker.stalled")
        await world.until(session, "completed")
    assert world.store.rows[session].epoch == 2
    assert len(world.model.asked) == 2  # what was in flight was still taken
    assert world.types(session).count("turn.ended") == 1


@pytest.mark.req("OPS-4")
@pytest.mark.case("C066")
async def test_a_drain_hands_over_at_a_boundary(world: World) -> None:
    world.model.script, world.model.takes_s = weather, 2
    first, second = world.node("w1"), world.node("w2")
    async with world.running(first) as group:
        session = await world.create()
        await world.moment(session, "model.requested", times=2)
        first.worker.drain()
        assert first.task is not None
        await asyncio.sleep(0.1)
        second.task = group.create_task(second.worker.run())
        began = world.clock.boot_s()
        await first.task
        assert world.clock.boot_s() - began < 2.5
        await world.until(session, "completed", "waiting")
        second.worker.drain()
    assert (await world.shown(session))["status"] == "completed"  # nobody had to verify anything
    assert world.tools.done == {"get_weather": 1, "create_reminder": 1}
    assert len(world.model.asked) == 3
    assert "w1" not in world.store.leases


async def test_a_drain_does_not_wait_for_ever(world: World) -> None:
    world.model.takes_s = 500
    first, second = world.node("w1", options=WorkerOptions(drain_s=5)), world.node("w2")
    async with world.running(first) as group:
        session = await world.create()
        await world.moment(session, "model.requested")
        await asyncio.sleep(1)
        began = world.clock.boot_s()
        first.worker.drain()
        assert first.task is not None
        await first.task
        assert 5 <= world.clock.boot_s() - began < 5.5
        world.model.takes_s = 0.1
        second.task = group.create_task(second.worker.run())
        await world.until(session, "completed")
        second.worker.drain()
    assert world.types(session).count("turn.ended") == 1


@pytest.mark.req("OPS-4")
async def test_a_drain_that_is_cut_while_sessions_are_given_up_ends(world: World) -> None:
    """Postgres is away as they are: `run` must return, else it renews its lease for ever."""

    async def between(name: str, call: Callable[[], Awaitable[object]]) -> object:
        if name == "give_up":
            await asyncio.sleep(500)
        return await call()

    world.model.takes_s = 3
    first = world.node("w1", between=between, options=WorkerOptions(drain_s=5))
    async with world.running(first):
        session = await world.create()
        await world.moment(session, "model.requested")
        world.model.takes_s = 0.1
        first.worker.drain()
        assert first.task is not None
        async with asyncio.timeout(10):
            await asyncio.wait([first.task])
    async with world.running(world.node("w2")):
        await world.until(session, "completed", within_s=5)


async def test_a_session_in_recovery_is_drained_too(world: World) -> None:
    """It has no driver yet which could be told to stop."""
    faults = Faults()
    faults.before["read_many"] = [AWAY]
    session = await world.create()
    world.store.way_s, world.model.takes_s = 0.05, 60
    node = world.node(between=faults)
    async with world.running(node):
        while not node.worker.owned:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # claimed, being read
        began = world.clock.boot_s()
        node.worker.drain()
        assert node.task is not None
        await node.task
        assert world.clock.boot_s() - began < 1
    assert world.model.asked == []
    assert world.store.rows[session].owner is None


@pytest.mark.req("STATE-10")
@pytest.mark.case("C081")
async def test_poison_ends_the_session_and_the_next_turn_can_be_sent(world: World) -> None:
    """A tool kills every process that calls it."""
    world.model.script = weather
    async with world.api():
        session = await world.create("Weather")
        for n in range(1 + MOST_CLAIMS):  # the first of them brought the model's answer
            await dies(world.node(f"w{n}", between=Death(on="run")))
            await asyncio.sleep(LEASE_S + 1)
    row = world.store.rows[session]
    assert (row.claims, row.facts.status) == (MOST_CLAIMS, "active")
    healthy = world.node("healthy")
    async with world.running(healthy):
        await world.until(session, "failed")
        shown = await world.shown(session)
        assert shown["stop_reason"] == StopReason.UNRECOVERABLE_ERROR
        assert "could not be run" in shown["error"]["message"]  # type: ignore[index]
        await world.say(session, "Again")
        await world.until(session, "completed")
        frames = await world.frames(session)
    assert seqs(frames) == list(range(1, row.head + 1))
    assert world.types(session).count("turn.ended") == 2
    assert healthy.observer.said("session.poison")


async def test_messages_to_a_waiting_session_do_not_poison_it(world: World) -> None:
    """Each is a claim without an effect's answer, but none of them kills anybody."""
    session = await _in_doubt(world)
    async with world.running(world.node("heir")):
        await world.until(session, "waiting")
        for n in range(2 * MOST_CLAIMS):
            await world.say(session, f"and {n}")
            await asyncio.sleep(1)
        assert (await world.shown(session))["status"] == "waiting"
        call = world.state(session).calls[0].call.call_id
        await world.answers.verify(TENANT, session, call, None, None, happened=True)
        await world.until_turn(session, 1)
        assert world.types(session).count("turn.ended") >= 1
        await world.until(session, "completed")


async def _in_doubt(world: World) -> str:
    """Return a session whose owner died while a `once` call was on its way."""
    world.model.script = weather
    async with world.api():
        session = await world.create("Weather")
        death = Death(on="run", after=True, when=lambda: bool(world.tools.done["create_reminder"]))
        await dies(world.node("doomed", between=death))
    assert world.tools.done["create_reminder"] == 1
    return session


@pytest.mark.case("C073", "C180")
async def test_a_session_that_crashes_ends_no_other(world: World) -> None:
    world.model.script = faulty
    node = world.node()
    async with world.running(node):
        bad = await world.create("bad")
        good = [await world.create(f"good {n}") for n in range(5)]
        for session in good:
            await world.until(session, "completed")
        await world.until(bad, "failed")
        assert len(node.observer.said("session.crashed")) == MOST_CLAIMS
        assert "an adapter's bug" in str(node.observer.said("session.crashed")[0]["detail"])


async def test_poison_between_two_turns_ends_the_turn_that_could_not_begin(world: World) -> None:
    async def broken(_tenant: str) -> list[ToolSpec]:
        raise ZeroDivisionError

    node = world.node()
    async with world.running(node):
        session = await world.create("one")
        await world.until(session, "completed")
        world.toolstore.current = broken  # type: ignore[method-assign,assignment]
        await world.say(session, "two")
        await world.until(session, "failed")
        assert (await world.shown(session))["turn"] == 2
    last = world.journal(session)[-1]
    assert (last.body.TYPE, last.turn) == ("turn.ended", 2)
    assert world.types(session).count("turn.started") == 1


@pytest.mark.case("C081")
async def test_a_journal_that_cannot_be_folded_ends_as_poison(world: World) -> None:
    session = await world.create("one")
    events = world.store.events[session]
    world.store.events[session] = [events[0], _moved(events[1])]
    node = world.node()
    async with world.running(node):
        await world.until(session, "failed")
    crashes = node.observer.said("session.crashed")
    assert [crash["error"] for crash in crashes] == ["Tampered"] * MOST_CLAIMS


def _moved(event: SealedEvent) -> SealedEvent:
    return replace(event, payload=event.payload[:-1] + b"x")


async def test_a_session_passed_on_by_many_drains_is_not_poison(world: World) -> None:
    """A rolling restart: each worker has it for a moment only, and the answer takes long."""
    world.model.takes_s = 30
    session = await world.create()
    for n in range(2 * MOST_CLAIMS):
        node = world.node(f"w{n}", options=WorkerOptions(drain_s=0.5))
        async with world.running(node):
            await asyncio.sleep(1)
    assert world.store.rows[session].epoch == 2 * MOST_CLAIMS
    async with world.running(world.node("last")):
        await world.until(session, "completed")


async def test_a_worker_without_the_key_leaves_a_session_alone(world: World) -> None:
    """Keys are rolled out worker by worker: one that lags must not bury what others can run."""
    session = await world.create()
    keys, world.keyring = world.keyring, MasterKeys({"k0": b"0" * 32})
    lagging = world.node("lagging")
    world.keyring = keys
    async with world.running(lagging):
        await asyncio.sleep(2 * MOST_CLAIMS)
        assert world.store.rows[session].epoch == 0
        async with world.running(world.node("able")):
            await world.until(session, "completed")
    assert lagging.observer.said("session.crashed") == []


async def test_a_session_whose_key_does_not_open_is_laid_to_rest(world: World) -> None:
    session = await world.create()
    row = world.store.rows[session]
    row.new = replace(row.new, key=replace(row.new.key, wrapped=b"x" * 60))
    node = world.node()
    async with world.running(node):
        await asyncio.sleep(2 * MOST_CLAIMS)
    assert (row.facts.status, row.owner, row.wake_us) == ("closed", None, None)
    assert len(node.observer.said("session.crashed")) == MOST_CLAIMS


async def test_an_erased_session_is_laid_to_rest_once(world: World) -> None:
    faults = Faults()
    session = await world.create()
    world.store.erase(session)
    node = world.node(between=faults)
    async with world.running(node):
        await asyncio.sleep(5)
    row = world.store.rows[session]
    assert (row.facts.status, row.owner, row.wake_us, row.epoch) == ("closed", None, None, 1)
    assert node.observer.said("session.unreadable")


@pytest.mark.req("STATE-4")
@pytest.mark.case("C069", "C133")
async def test_a_worker_that_cannot_renew_sends_nothing_and_writes_nothing(world: World) -> None:
    """Its lease runs out while the model answers; another takes over; what it says is fenced."""
    faults = Faults()
    world.model.script, world.model.takes_s = weather, 20
    stale, heir = world.node("w1", between=faults), world.node("w2")
    async with world.running(stale) as group:
        session = await world.create()
        await world.moment(session, "model.requested")
        faults.before["renew"] = [AWAY] * 1000
        await asyncio.sleep(8)
        assert not stale.desk.lease.fresh()
        heir.task = group.create_task(heir.worker.run())
        await world.moment(session, "turn.ended")
        heir.worker.drain()
    check = world.types(session)
    assert check.count("turn.ended") == 1
    assert world.tools.done["create_reminder"] == 1
    assert [e.seq for e in _told(stale.observer.events, session)] == [3, 4, 5, 6]


def _told(events: dict[str, list[Event]], session: str) -> list[Event]:
    return events.get(session, [])


async def test_an_heir_goes_on_at_once_and_its_claim_rides_with_the_answer(world: World) -> None:
    async with world.api() as group:
        session = await world.create()
        await dies(world.node("doomed", between=Death(on="answer")))
        before = len(world.store.batches)
        heir = world.node("heir")
        running = group.create_task(heir.worker.run())
        await world.until(session, "completed")
        assert len(world.store.batches) == before + 1
        heir.worker.drain()
        await running
    assert world.types(session)[-6:-4] == ["session.claimed", "model.answered"]


@pytest.mark.parametrize("protection", ["epoch", "head"])
async def test_either_fence_alone_keeps_the_journal_whole(world: World, protection: str) -> None:
    world.store.on = dataclasses.replace(world.store.on, **{protection: False})
    await _two_owners(world)


async def test_without_both_fences_two_owners_write_one_journal(world: World) -> None:
    """What epoch and expected head are good for."""
    world.store.on = dataclasses.replace(world.store.on, epoch=False, owner=False, head=False)
    with pytest.raises(AssertionError):
        await _two_owners(world)


async def _two_owners(world: World) -> None:
    """One owner is stopped inside a model call; the other takes over; both answers come."""
    faults = Faults()
    world.model.takes_s = 30
    stale, heir = world.node("w1", between=faults), world.node("w2")
    async with world.running(stale) as group:
        session = await world.create()
        await world.moment(session, "model.requested")
        faults.before["renew"] = [AWAY] * 1000
        heir.task = group.create_task(heir.worker.run())
        await world.moment(session, "turn.ended")
        assert world.store.rows[session].epoch == 2
        await asyncio.sleep(60)
        heir.worker.drain()
    world.journal(session)
    assert world.types(session).count("turn.ended") == 1


async def test_a_living_owner_is_never_robbed(world: World) -> None:
    world.model.takes_s = 100
    first, second = world.node("w1"), world.node("w2")
    async with world.running(first, second):
        session = await world.create(limits={"total_timeout_s": 1000.0})
        await world.until(session, "completed")
    assert world.store.rows[session].epoch == 1


async def test_without_that_protection_it_is_robbed(world: World) -> None:
    """What asking for a living owner is good for: else every nudge takes the session away."""
    world.store.on.living_owner = False
    world.model.takes_s = 3
    first, second = world.node("w1"), world.node("w2")
    async with world.running(first, second):
        session = await world.create()
        await asyncio.sleep(0.5)
        await world.say(session, "more")
        await asyncio.sleep(5)
        assert world.store.rows[session].epoch > 2


async def test_a_session_claimed_anew_while_its_last_run_finishes_is_not_forgotten(
    world: World,
) -> None:
    """The release is committed, the hot state is still on its way, a message comes."""
    world.model.script = shop
    node = world.node()
    slow = 0.4

    async def put(session_id: str, snapshot: object) -> None:
        del session_id, snapshot
        await asyncio.sleep(slow)

    world.hot.put = put  # type: ignore[method-assign]
    async with world.running(node):
        session = await world.create("one")
        await world.until_turn(session, 1)
        world.model.takes_s = 3
        await world.say(session, "two")
        began = world.clock.boot_s()
        await world.until_turn(session, 2)
        assert world.clock.boot_s() - began < 6.2  # at once, not at the next poll
    assert world.store.rows[session].epoch == 2
