"""The journal writer: merged commits, each entry with a fate of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from app.runtime.errors import StoreRefused, StoreUnavailable
from app.runtime.execution import writer as module
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate
from tests.fakes.clock import LoopClock
from tests.fakes.interposed import Faults, interposed
from tests.fakes.store import MemoryStore
from tests.runtime.entries import entry, put

IDS = [f"s{n:03}" for n in range(200)]


@asynccontextmanager
async def running(store: MemoryStore, faults: Faults | None = None) -> AsyncIterator[JournalWriter]:
    clock = LoopClock()
    port = interposed(store, faults or Faults())
    writer = JournalWriter(store=port, clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        yield writer
        task.cancel()


async def all_of(writer: JournalWriter, *entries: Append) -> list[Appended]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(writer.append(one)) for one in entries]
    return [task.result() for task in tasks]


def store() -> MemoryStore:
    return MemoryStore(LoopClock(), way_s=0.01)


async def test_appends_of_many_sessions_are_few_batches() -> None:
    kept = store()
    await put(kept, *IDS)
    async with running(kept) as writer:
        fates = await all_of(writer, *(entry(i) for i in IDS))
    assert {f.fate for f in fates} == {Fate.WRITTEN}
    assert [len(batch) for batch in kept.batches] == [128, 72]


async def test_a_batch_holds_one_entry_a_session_and_keeps_their_order() -> None:
    kept = store()
    await put(kept, "a", "b")
    async with running(kept) as writer:
        first, second, other = await all_of(writer, entry("a"), entry("a", after=2), entry("b"))
    assert [first.fate, second.fate, other.fate] == [Fate.WRITTEN] * 3
    assert kept.batches == [["a", "b"], ["a"]]


async def test_a_batch_is_bounded_in_bytes() -> None:
    kept = store()
    await put(kept, *IDS[:4])
    half = module.MAX_BYTES // 2
    sizes = [half, half, half, 2 * module.MAX_BYTES]
    async with running(kept) as writer:
        entries = [entry(i, size=size) for i, size in zip(IDS, sizes, strict=False)]
        await all_of(writer, *entries)
    assert kept.batches == [IDS[:2], IDS[2:3], IDS[3:4]]


async def test_an_entry_whose_row_is_locked_is_tried_again() -> None:
    kept = store()
    await put(kept, "a", "b")
    lock = kept.rows["a"].lock
    await lock.acquire()
    async with running(kept) as writer, asyncio.TaskGroup() as group:
        held = group.create_task(writer.append(entry("a")))
        assert (await writer.append(entry("b"))).fate is Fate.WRITTEN
        await asyncio.sleep(0.2)
        assert not held.done()
        lock.release()
    assert held.result().fate is Fate.WRITTEN
    assert len(kept.events["a"]) == 2


async def test_an_entry_of_a_lost_session_is_fenced_and_the_others_are_not() -> None:
    kept = store()
    await put(kept, "a", "b")
    kept.rows["a"].epoch = 2
    async with running(kept) as writer:
        lost, other = await all_of(writer, entry("a"), entry("b"))
    assert (lost.fate, other.fate) == (Fate.FENCED, Fate.WRITTEN)
    assert len(kept.events["a"]) == 1


async def test_a_refused_entry_does_not_take_the_others_with_it() -> None:
    kept = store()
    await put(kept, *IDS[:16])

    whole = kept.append_batch

    async def refusing(batch: Sequence[Append]) -> list[Appended]:
        if any(one.session_id == "s007" for one in batch):
            raise StoreRefused("bad data")
        return await whole(batch)

    kept.append_batch = refusing  # type: ignore[method-assign]
    async with running(kept) as writer, asyncio.TaskGroup() as group:
        tasks = {i: group.create_task(_fate(writer, entry(i))) for i in IDS[:16]}
    fates = {i: task.result() for i, task in tasks.items()}
    assert fates.pop("s007") is None
    assert set(fates.values()) == {Fate.WRITTEN}


async def _fate(writer: JournalWriter, one: Append) -> Fate | None:
    try:
        return (await writer.append(one)).fate
    except StoreRefused:
        return None


LOST = StoreUnavailable("the connection was lost")


async def test_connection_lost_before_the_commit_writes_again() -> None:
    kept, faults = store(), Faults()
    await put(kept, "a")
    faults.before["append_batch"] = [LOST]
    faults.before["heads"] = [LOST, LOST]
    async with running(kept, faults) as writer:
        assert (await writer.append(entry("a"))).fate is Fate.WRITTEN
    assert faults.calls == ["append_batch", "heads", "heads", "heads", "append_batch"]
    assert [event.seq for event in kept.events["a"]] == [1, 2]


@pytest.mark.case("C135")
async def test_connection_lost_after_the_commit_is_read_back() -> None:
    kept, faults = store(), Faults()
    await put(kept, "a", "b")
    faults.after["append_batch"] = [LOST]
    async with running(kept, faults) as writer:
        a, b = await all_of(writer, entry("a"), entry("b", release=True))
    assert (a.fate, a.released) == (Fate.WRITTEN, False)
    assert (b.fate, b.released) == (Fate.WRITTEN, True)
    assert faults.calls == ["append_batch", "heads"]
    assert [event.seq for event in kept.events["a"]] == [1, 2]


async def test_without_reading_back_the_same_loss_looks_like_a_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What reading back is good for: simply trying again says that the session is lost."""
    kept, faults = store(), Faults()
    await put(kept, "a")
    faults.after["append_batch"] = [LOST]

    async def again(writer: JournalWriter, batch: Sequence[module._Waiting]) -> None:
        for waiting in batch:
            writer._again(waiting)  # noqa: SLF001 - a try without the mechanism

    monkeypatch.setattr(JournalWriter, "_read_back", again)
    async with running(kept, faults) as writer:
        assert (await writer.append(entry("a"))).fate is Fate.FENCED


async def test_a_try_that_postgres_carries_out_late_is_no_fence() -> None:
    """The answer is lost, the journal shows nothing yet; then the lost statement commits."""
    kept, faults = store(), Faults()
    await put(kept, "a", "b")
    faults.before["append_batch"] = [LOST]
    a, b = entry("a"), entry("b", release=True)
    late = asyncio.Event()

    async def between(name: str, call: Callable[[], Awaitable[object]]) -> object:
        if name == "append_batch" and "heads" in faults.calls and not late.is_set():
            late.set()
            await kept.append_batch([a, b])
        return await faults(name, call)

    clock = LoopClock()
    writer = JournalWriter(store=interposed(kept, between), clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        fates = await all_of(writer, a, b)
        task.cancel()
    assert [(f.fate, f.released) for f in fates] == [(Fate.WRITTEN, False), (Fate.WRITTEN, True)]
    assert [event.seq for event in kept.events["a"]] == [1, 2]


async def test_a_loss_during_which_another_owner_came_is_a_fence() -> None:
    kept, faults = store(), Faults()
    await put(kept, "a", "b")
    faults.before["append_batch"] = [LOST]
    kept.rows["a"].epoch = 2
    kept.rows["b"].head_hash, kept.rows["b"].head = b"another", 2
    async with running(kept, faults) as writer:
        a, b = await all_of(writer, entry("a"), entry("b"))
    assert (a.fate, b.fate) == (Fate.FENCED, Fate.FENCED)


async def test_a_release_is_not_taken_for_written_when_another_owner_released() -> None:
    kept, faults = store(), Faults()
    await put(kept, "a")
    faults.before["append_batch"] = [LOST]
    kept.rows["a"].epoch, kept.rows["a"].owner = 2, None
    async with running(kept, faults) as writer:
        lost = await writer.append(entry("a", events=0, release=True))
    assert (lost.fate, lost.released) == (Fate.FENCED, False)


async def test_an_entry_without_events_is_read_back_by_its_release() -> None:
    kept, faults = store(), Faults()
    await put(kept, "a", "b")
    faults.after["append_batch"] = [LOST]
    async with running(kept, faults) as writer:
        a, b = await all_of(
            writer, entry("a", events=0, release=True), entry("b", events=0, inbox_seen=0)
        )
    assert (a.fate, a.released) == (Fate.WRITTEN, True)
    assert (b.fate, b.released) == (Fate.WRITTEN, False)
    assert faults.calls == ["append_batch", "heads", "append_batch"]


async def test_an_append_nobody_waits_for_any_more_is_not_written() -> None:
    kept = store()
    await put(kept, "a", "b", "c")
    async with running(kept) as writer, asyncio.TaskGroup() as group:
        first = group.create_task(writer.append(entry("a")))
        await asyncio.sleep(0.005)
        given_up = group.create_task(writer.append(entry("b")))
        await asyncio.sleep(0.005)
        given_up.cancel()
        await first
        await writer.append(entry("c"))
    assert kept.batches == [["a"], ["c"]]


async def test_an_unheard_append_of_a_session_given_up_meanwhile_is_fenced() -> None:
    """The epoch is the same and the head as expected; it must not be tried for ever."""
    kept, faults = store(), Faults()
    await put(kept, "a")
    faults.before["append_batch"] = [StoreUnavailable("away")]
    kept.rows["a"].owner = None
    async with asyncio.timeout(10), running(kept, faults) as writer:
        (fate,) = await all_of(writer, entry("a"))
    assert fate.fate is Fate.FENCED
