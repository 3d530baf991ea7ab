"""Recovery: the shortest way to the state, and never a wrong one."""

from dataclasses import replace

import pytest

from app.core.evolve import BrokenJournalError
from app.core.state import STATE_V, State
from app.runtime.execution.copies import HOT_LEAST, HOT_PER_DOUBLING
from app.runtime.execution.recovery import SHORT_JOURNAL, Recovery
from app.runtime.ports.journal import Snapshot
from app.runtime.ports.workers import Claim
from tests.fakes.interposed import Faults, interposed
from tests.fakes.small import KeepingObserver
from tests.runtime.scripts import shop
from tests.runtime.world import World


class Bench:
    """A long session at rest, and what folds it again."""

    def __init__(self, world: World, session: str) -> None:
        self.world = world
        self.session = session
        self.faults = Faults()
        self.observer = KeepingObserver()
        self.recovery = Recovery(
            codec=world.codec,
            keyring=world.keyring,
            journal=interposed(world.store, self.faults),
            hot=interposed(world.hot, self.faults),
            observer=self.observer,
        )

    def claim(self, *, takeover: bool = False) -> Claim:
        row = self.world.store.rows[self.session]
        return Claim(
            session_id=self.session,
            tenant=row.new.tenant,
            epoch=row.epoch + 1,
            claims=1,
            key=row.new.key,
            head=row.head,
            head_hash=row.head_hash,
            inbox_head=0,
            inbox_seen=0,
            takeover=takeover,
        )

    async def fold(self, *, takeover: bool = False) -> State:
        claim = self.claim(takeover=takeover)
        return await self.recovery.fold(claim, self.recovery.sealer(claim))

    def snapshot(self, seq: int) -> Snapshot:
        from_journal = self.world.journal(self.session)[:seq]
        state = self.world.fold(from_journal)
        return self.world.sealer(self.session).snapshot(state)


async def long_one(world: World, turns: int = 6) -> Bench:
    world.model.script = shop
    async with world.running():
        session = await world.create("one")
        for n in range(1, turns):
            await world.until_turn(session, n)
            await world.say(session, f"turn {n}")
        await world.until_turn(session, turns)
    bench = Bench(world, session)
    assert world.store.rows[session].head > SHORT_JOURNAL
    return bench


@pytest.mark.req("STATE-2")
async def test_a_fitting_hot_state_saves_reading_the_journal(world: World) -> None:
    bench = await long_one(world)
    assert await bench.fold() == world.state(bench.session)
    assert bench.faults.calls == ["get", "read"]
    head = world.store.rows[bench.session].head
    assert head - world.hot.states[bench.session].seq < max(HOT_LEAST, head // HOT_PER_DOUBLING)


@pytest.mark.req("STATE-2")
@pytest.mark.case("C129")
async def test_without_redis_the_snapshot_or_the_journal_serves(world: World) -> None:
    bench = await long_one(world)
    world.hot.states.clear()
    assert await bench.fold() == world.state(bench.session)
    assert bench.faults.calls == ["get", "latest_snapshot", "read"]
    world.store.snapshots[bench.session] = bench.snapshot(40)
    assert await bench.fold() == world.state(bench.session)


@pytest.mark.parametrize("wrong", ["state_v", "beyond", "sealed", "another", "cut"])
async def test_a_copy_that_does_not_fit_is_not_used(world: World, wrong: str) -> None:
    bench = await long_one(world)
    hot = world.hot.states[bench.session]
    cipher = world.cipher(bench.session)
    changed = {
        "state_v": replace(hot, state_v=STATE_V + 1),
        "beyond": replace(hot, seq=world.store.rows[bench.session].head + 1),
        "sealed": replace(hot, payload=hot.payload[:-1] + b"?"),
        "another": replace(hot, payload=b""),
        "cut": replace(hot, payload=cipher.seal(b'{"created": 1', b"state:%d" % hot.seq)),
    }
    world.hot.states[bench.session] = changed[wrong]
    assert await bench.fold() == world.state(bench.session)
    assert bench.faults.calls == ["get", "latest_snapshot", "read"]
    told = [line for line, _ in bench.observer.lines]
    assert told == ([] if wrong in {"state_v", "beyond"} else ["session.copy_unreadable"])


async def test_an_older_copy_is_a_beginning(world: World) -> None:
    bench = await long_one(world)
    for seq in (2, 20, 41, 63, 80):
        world.hot.states[bench.session] = bench.snapshot(seq)
        assert await bench.fold() == world.state(bench.session)


async def test_a_journal_that_ends_early_is_an_error(world: World) -> None:
    bench = await long_one(world)
    world.hot.states.clear()
    del world.store.events[bench.session][-1]
    with pytest.raises(BrokenJournalError, match="the session's head is"):
        await bench.fold()


async def test_a_journal_with_a_hole_is_an_error(world: World) -> None:
    bench = await long_one(world)
    world.hot.states.clear()
    del world.store.events[bench.session][30]
    with pytest.raises(BrokenJournalError, match="does not follow"):
        await bench.fold()


@pytest.mark.req("OBS-1")
async def test_the_open_turn_is_shown_again_after_a_takeover(world: World) -> None:
    world.model.script, world.model.takes_s = shop, 5
    async with world.running(world.node()) as group:
        del group
        session = await world.create("one")
        await world.until_turn(session, 1)
        await world.say(session, "two")
        await world.moment(session, "tool.finished", 2)
        bench = Bench(world, session)
        state = await bench.fold()
        assert bench.observer.again == {}
        assert await bench.fold(takeover=True) == state
        again = bench.observer.again[session]
        await world.until_turn(session, 2)
    started = [e.seq for e in world.journal(session) if e.body.TYPE == "turn.started"]
    assert again[0].seq == started[1]
    assert again[-1].seq == state.seq


async def test_a_turn_that_is_over_is_not_shown_again(world: World) -> None:
    bench = await long_one(world)
    world.hot.states.clear()
    await bench.fold(takeover=True)
    assert bench.observer.again == {}


async def test_a_journal_that_another_owner_has_gone_on_with_is_not_taken_for_a_broken_one(
    world: World,
) -> None:
    """Found by the simulation: a worker was stopped between its claim and its fold."""
    bench = await long_one(world)
    claim, then = bench.claim(), bench.world.state(bench.session)
    async with world.running():
        await world.say(bench.session, "another turn")
        await world.until_turn(bench.session, then.turn + 1)
    short = replace(claim, head=SHORT_JOURNAL)
    read = await world.store.read(bench.session, 0, 1000)
    for stale in (claim, short):
        state = await bench.recovery.fold(stale, bench.recovery.sealer(stale), read)
        assert state == world.fold(world.journal(bench.session)[: stale.head])
