"""Following: every reader sees each durable event once and in order, whatever is lost."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import pytest

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.live import LiveEvent
from app.runtime.sealing import DELTA_CONTEXT, event_context
from app.runtime.streams import follow as module
from app.runtime.streams.follow import Follower, Mailbox
from app.runtime.streams.frames import PING, Frame
from tests.fakes.interposed import Faults, interposed
from tests.fakes.loop import VirtualLoop
from tests.runtime.scripts import shop
from tests.runtime.world import World, seqs

AWAY = StoreUnavailable("away")


@dataclass
class Author:
    """Writes a journal by hand: commit, then publish."""

    world: World
    session: str = ""

    async def begin(self) -> str:
        self.session = await self.world.create()
        self.world.store.rows[self.session].owner = "author"
        self.world.store.rows[self.session].wake_us = None
        return self.session

    def commit(self, kind: str = "step.finished") -> LiveEvent:
        row = self.world.store.rows[self.session]
        row.head += 1
        plain = b'{"seq": %d}' % row.head
        payload = self.world.cipher(self.session).seal(plain, event_context(row.head))
        event = SealedEvent(row.head, 1, kind, None, 1, 1, 0, payload, b"h")
        self.world.store.events[self.session].append(event)
        if kind == "turn.ended":
            row.facts = replace(row.facts, status="completed")
            row.owner = None
        return LiveEvent(self.session, row.head, payload, kind)

    async def write(self, *kinds: str) -> None:
        await self.world.hub.publish([self.commit(kind) for kind in kinds or ("step.finished",)])

    async def delta(self, text: str) -> None:
        plain = b'{"text": "%s"}' % text.encode()
        payload = self.world.cipher(self.session).seal(plain, DELTA_CONTEXT)
        await self.world.hub.publish([LiveEvent(self.session, None, payload, "delta")])


@pytest.fixture
def author(world: World) -> Author:
    return Author(world)


def everything(world: World, session: str) -> list[int]:
    return list(range(1, world.store.rows[session].head + 1))


def interleaved(seed: int) -> None:
    """Write at random moments while readers attach at random moments, some of it being lost."""

    async def tell() -> None:
        world, chance = World(), random.Random(seed)
        author = Author(world)
        session = await author.begin()
        world.hub.way_s = chance.choice([0, 0.001, 0.01])
        world.store.way_s = chance.choice([0, 0.001, 0.02])
        world.hub.loses = lambda _event: chance.random() < 0.15
        async with world.api() as group:
            delays = [chance.random() / 5 for _ in range(3)]
            readers = [group.create_task(_late(world, session, delay)) for delay in delays]
            for _ in range(chance.randrange(2, 12)):
                await asyncio.sleep(chance.random() / 30)
                await author.write()
            await author.write("turn.ended")
            began = world.clock.boot_s()
            _, hanging = await asyncio.wait(readers, timeout=20)
            for reader in hanging:
                reader.cancel()
            assert world.clock.boot_s() - began < module.HEADS_S + 0.5
        for reader in readers:
            assert seqs(reader.result()) == everything(world, session)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(tell())


async def _late(world: World, session: str, delay_s: float) -> list[Frame]:
    await asyncio.sleep(delay_s)
    return await world.frames(session)


def failures() -> int:
    """Return how many of the interleavings go wrong."""
    wrong = 0
    for seed in range(60):
        try:
            interleaved(seed)
        except (AssertionError, BaseExceptionGroup):
            wrong += 1
    return wrong


@pytest.mark.req("API-3")
@pytest.mark.case("C057", "C131")
def test_two_hundred_interleavings_of_writing_and_attaching() -> None:
    for seed in range(200):
        try:
            interleaved(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_without_the_journal_at_a_gap_events_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looking for gaps is good for."""
    whole = module._in_order  # noqa: SLF001

    def gapless(items: list[LiveEvent], cursor: int) -> object:
        known = [item for item in items if item.seq is not None and item.seq > cursor]
        return whole(items, known[0].seq - 1 if known else cursor)  # type: ignore[operator]

    monkeypatch.setattr(module, "_in_order", gapless)
    assert failures() > 0


def test_without_leaving_out_what_was_seen_events_come_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the comparison with the cursor is good for."""

    def naive(items: list[LiveEvent], cursor: int) -> object:
        return items, max([cursor, *(item.seq or 0 for item in items)]), True

    monkeypatch.setattr(module, "_in_order", naive)
    assert failures() > 0


def test_without_the_comparison_of_heads_a_lost_end_is_never_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_has_news", lambda _found, _mailbox: False)
    assert failures() > 0


async def test_a_lost_last_event_is_found_within_two_seconds(author: Author) -> None:
    world, session = author.world, await author.begin()
    world.hub.loses = lambda event: event.type == "turn.ended"
    async with world.api() as group:
        reader = group.create_task(world.frames(session))
        await asyncio.sleep(1)
        await author.write("turn.ended")
        began = world.clock.boot_s()
        assert seqs(await reader) == [1, 2, 3]
        assert world.clock.boot_s() - began <= module.HEADS_S + 0.1


async def test_a_loss_of_one_reader_is_not_hidden_by_another(author: Author) -> None:
    """Both follow the same session; only one of them gets the last event."""
    world, session = author.world, await author.begin()
    async with world.api() as group:
        first = group.create_task(world.frames(session))
        second = group.create_task(world.frames(session))
        await asyncio.sleep(1)
        author.commit("turn.ended")
        last = world.store.events[session][-1]
        live = LiveEvent(session, last.seq, last.payload, last.type)
        world.hub._readers[session][0].put_nowait(live)  # noqa: SLF001
        assert seqs(await first) == seqs(await second) == [1, 2, 3]
        assert world.clock.boot_s() < 4


async def test_rest_without_a_further_event_ends_the_stream(author: Author) -> None:
    """A message came at the end, so the owner stayed; it led to nothing, and then it left."""
    world, session = author.world, await author.begin()
    async with world.api() as group:
        reader = group.create_task(world.frames(session))
        await asyncio.sleep(1)
        row = world.store.rows[session]
        event = author.commit("turn.ended")
        row.owner, row.inbox_head = "author", 1
        await world.hub.publish([event])
        await asyncio.sleep(3)
        assert not reader.done()
        row.owner, row.inbox_seen = None, 1
        assert seqs(await reader) == [1, 2, 3]
        assert world.clock.boot_s() < 7


async def test_the_stream_goes_on_while_the_inbox_is_not_drained(world: World) -> None:
    """Two turns: the first end is passed on, the stream ends with the second."""
    world.model.takes_s = 1
    async with world.running() as group:
        session = await world.create("one")
        reader = group.create_task(world.frames(session))
        await world.moment(session, "model.requested")
        await world.say(session, "two")
        frames = await reader
    ends = [frame.seq for frame in frames if frame.type == "turn.ended"]
    assert len(ends) == 2
    assert frames[-1].seq == ends[-1]
    assert seqs(frames) == everything(world, session)


async def test_forever_goes_on_from_turn_to_turn(world: World) -> None:
    async with world.running() as group:
        session = await world.create("one")
        seen: list[Frame] = []

        async def read() -> None:
            cipher = world.cipher(session)
            follow = world.follower.follow(session, cipher, 0, forever=True)
            async with contextlib.aclosing(follow) as frames:
                async for frame in frames:
                    seen.append(frame)  # noqa: PERF401 - it never ends

        reader = group.create_task(read())
        await world.until_turn(session, 1)
        await asyncio.sleep(40)
        assert PING in seen
        await world.say(session, "two")
        await world.until_turn(session, 2)
        await asyncio.sleep(1)
        assert not reader.done()
        reader.cancel()
    assert seqs(seen) == everything(world, session)


async def test_forever_reads_the_journal_only_when_there_is_news(author: Author) -> None:
    world, session, faults = author.world, await author.begin(), Faults()
    follower = Follower(journal=interposed(world.store, faults), hub=world.hub, clock=world.clock)
    author.commit("turn.ended")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(follower.run())
        await asyncio.sleep(0)
        follow = follower.follow(session, world.cipher(session), 0, forever=True)
        reader = group.create_task(_drain(follow))
        await asyncio.sleep(60)
        assert faults.calls.count("read") == 1
        assert 28 <= faults.calls.count("heads") <= 31
        reader.cancel()
        running.cancel()


async def _drain(follow: AsyncGenerator[Frame, None]) -> list[Frame]:
    async with contextlib.aclosing(follow) as frames:
        return [frame async for frame in frames]


@pytest.mark.case("C082")
async def test_a_slow_reader_overflows_and_catches_up_from_the_journal(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAILBOX", 8)
    world, session = author.world, await author.begin()
    got: list[Frame] = []

    async def slowly() -> None:
        async for frame in world.follower.follow(session, world.cipher(session), 0):
            got.append(frame)
            await asyncio.sleep(0.2)

    async with world.api() as group:
        group.create_task(slowly())
        fast = group.create_task(world.frames(session))
        for _ in range(100):
            await author.write()
            await asyncio.sleep(0.01)
        await author.write("turn.ended")
        assert seqs(await fast) == everything(world, session)
        assert world.clock.boot_s() < 5  # the slow one held nobody up
    assert seqs(got) == everything(world, session)


async def test_a_mailbox_is_bounded() -> None:
    mailbox = Mailbox()
    for seq in range(1, 10 * module.MAILBOX):
        mailbox.put(LiveEvent("s", seq, b""))
        assert len(mailbox._items) <= module.MAILBOX  # noqa: SLF001
    assert await mailbox.take() is None


async def test_closing_a_reader_that_waits_leaves_nothing_behind(author: Author) -> None:
    world, session = author.world, await author.begin()
    async with world.api() as group:
        waiting = group.create_task(world.frames(session))
        await asyncio.sleep(1)
        assert world.hub.followed(session)
        waiting.cancel()
        await asyncio.wait([waiting])
        held = world.follower.follow(session, world.cipher(session), 0)
        await anext(held)
        await held.aclose()
        assert not world.hub.followed(session)
        assert world.follower._readers == {}  # noqa: SLF001
        await asyncio.sleep(5)


@pytest.mark.req("API-3")
@pytest.mark.case("C059")
@pytest.mark.parametrize("after", [0, 1, 7, 20])
async def test_a_finished_session_is_read_and_left_at_once(world: World, after: int) -> None:
    world.model.script = shop
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
        began = world.clock.boot_s()
        assert seqs(await world.frames(session, after)) == everything(world, session)[after:]
        assert world.clock.boot_s() - began < 0.1


async def test_a_stale_delta_is_not_shown_after_its_answer(author: Author) -> None:
    """The answer was read from the journal while its deltas were still waiting."""
    world, session = author.world, await author.begin()
    async with world.api() as group:
        world.store.way_s = 0.1
        reader = group.create_task(world.frames(session))
        await asyncio.sleep(0.05)  # attached, the journal is being read
        await author.delta("stale")
        await author.write("model.answered")
        await author.delta("fresh")
        await asyncio.sleep(1)
        await author.write("turn.ended")
        frames = await reader
    assert [frame.type for frame in frames[2:]] == ["model.answered", "delta", "turn.ended"]
    assert b"fresh" in frames[3].payload


@pytest.mark.case("C131")
async def test_a_cut_connection_means_reading_the_journal(author: Author) -> None:
    world, session = author.world, await author.begin()
    async with world.api() as group:
        reader = group.create_task(world.frames(session))
        await asyncio.sleep(0.5)
        author.commit()
        world.hub.cut()
        await asyncio.sleep(0.1)
        author.commit("turn.ended")
        world.hub.cut()
        began = world.clock.boot_s()
        assert seqs(await reader) == [1, 2, 3, 4]
        assert world.clock.boot_s() - began < 0.1


async def test_a_reader_who_has_begun_outlives_postgres_being_away(author: Author) -> None:
    world, session, faults = author.world, await author.begin(), Faults()
    follower = Follower(journal=interposed(world.store, faults), hub=world.hub, clock=world.clock)
    # The first read succeeds: one who finds Postgres away from the start is refused.
    faults.before["read"] = [None, AWAY, AWAY]
    faults.before["heads"] = [AWAY, AWAY]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(follower.run())
        await asyncio.sleep(0)
        reader = group.create_task(_drain(follower.follow(session, world.cipher(session), 0)))
        await asyncio.sleep(6)
        author.commit()  # nobody is told
        await asyncio.sleep(8)
        await author.write("turn.ended")
        faults.before["heads"] = [AWAY]
        assert seqs(await reader) == [1, 2, 3, 4]
        running.cancel()
    assert faults.before["read"] == []


async def test_a_reader_who_comes_while_postgres_is_away_is_refused(author: Author) -> None:
    world, session, faults = author.world, await author.begin(), Faults()
    follower = Follower(journal=interposed(world.store, faults), hub=world.hub, clock=world.clock)
    faults.before["read"] = [AWAY]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(follower.run())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await _drain(follower.follow(session, world.cipher(session), 0))
        running.cancel()


async def test_one_who_waits_asks_when_the_session_has_come_to_rest(author: Author) -> None:
    """He is told once, at the end; what happens on the way is nothing to him."""
    world, session = author.world, await author.begin()
    asked: list[float] = []

    async def done() -> bool:
        asked.append(world.clock.boot_s())
        return rests

    async with world.api() as group:
        rests, began = False, world.clock.boot_s()
        assert not await world.follower.until(session, done, within_s=3, look_s=9)
        assert world.clock.boot_s() - began == pytest.approx(3, abs=0.01)
        waiting = group.create_task(world.follower.until(session, done, within_s=60, look_s=60))
        await asyncio.sleep(0.1)
        asked.clear()
        await author.write("phase.entered", "model.requested", "turn.ended")
        world.hub.rested("ses_of_another")
        await asyncio.sleep(0.1)
        assert asked == []
        rests, told = True, world.clock.boot_s()
        world.hub.rested(session)
        assert await waiting
        assert world.clock.boot_s() - told < 0.1


async def test_following_before_the_follower_runs_is_a_fault(author: Author) -> None:
    session = await author.begin()
    with pytest.raises(RuntimeError, match="must be running"):
        await author.world.frames(session)
