"""Entries whose row is locked: they go apart, queue for it after a while, and hold up nobody."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from app.runtime.errors import StoreRefused
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate
from tests.fakes.clock import LoopClock
from tests.fakes.interposed import Faults, interposed
from tests.fakes.store import MemoryStore
from tests.runtime.entries import entry, put
from tests.runtime.test_writer import LOST, all_of
from tests.waiting import until


class Crowded(asyncio.Lock):
    """A lock that somebody has whenever one looks; who queues for it gets it."""

    @override
    def locked(self) -> bool:
        return True


class Scene:
    """A writer over a store in memory, and what it asked of it."""

    def __init__(self) -> None:
        self.kept, self.faults = MemoryStore(LoopClock(), way_s=0), Faults()
        self.writer = JournalWriter(store=interposed(self.kept, self.faults), clock=LoopClock())

    def called(self, name: str) -> int:
        return self.faults.calls.count(name)

    async def queuing(self, count: int) -> None:
        await until(lambda: self.called("append_in_turn") == count)


@asynccontextmanager
async def scene(*ids: str) -> AsyncIterator[Scene]:
    it = Scene()
    await put(it.kept, *ids)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(it.writer.run())
        yield it
        running.cancel()


async def test_an_entry_gets_through_though_its_row_is_never_found_free() -> None:
    async with scene("a") as it:
        it.kept.rows["a"].lock = Crowded()
        async with asyncio.timeout(10):
            assert (await it.writer.append(entry("a"))).fate is Fate.WRITTEN
        assert it.faults.calls[-1] == "append_in_turn"
        assert it.called("append_batch") == 3


async def test_others_are_written_while_some_queue_and_only_few_do() -> None:
    ids = ["a", "b", "c", "d"]
    async with scene(*ids, "free") as it, asyncio.TaskGroup() as group:
        for i in ids:
            await it.kept.rows[i].lock.acquire()
        tasks = {i: group.create_task(it.writer.append(entry(i))) for i in "ab"}
        await it.queuing(2)
        tasks |= {i: group.create_task(it.writer.append(entry(i))) for i in "cd"}
        for head in range(1, 21):
            assert (await it.writer.append(entry("free", after=head))).fate is Fate.WRITTEN
        tried = it.called("append_batch")
        await until(lambda: it.called("append_batch") > tried + 3)
        assert it.called("append_in_turn") == 2
        it.kept.rows["d"].lock.release()
        assert (await tasks["d"]).fate is Fate.WRITTEN
        assert it.called("append_in_turn") == 2, "it hit the gap itself"
        assert not any(tasks[i].done() for i in "abc")
        for i in "abc":
            it.kept.rows[i].lock.release()
    assert {task.result().fate for task in tasks.values()} == {Fate.WRITTEN}


async def test_entries_of_a_session_keep_their_order_while_the_first_is_apart() -> None:
    async with scene("a") as it, asyncio.TaskGroup() as group:
        lock = it.kept.rows["a"].lock
        await lock.acquire()
        both = group.create_task(all_of(it.writer, entry("a"), entry("a", after=2)))
        await it.queuing(1)
        tried = it.called("append_batch")
        await asyncio.sleep(0.03)
        assert it.called("append_batch") == tried, "nor does the second one try meanwhile"
        lock.release()
    assert [fate.fate for fate in both.result()] == [Fate.WRITTEN] * 2
    assert [event.seq for event in it.kept.events["a"]] == [1, 2, 3]


async def test_one_whose_turn_does_not_come_in_time_queues_again() -> None:
    async with scene("a") as it:
        it.kept.rows["a"].lock = Crowded()
        in_turn, turns = it.kept.append_in_turn, [Appended(Fate.SKIPPED)] * 2

        async def late(one: Append) -> Appended:
            return turns.pop() if turns else await in_turn(one)

        it.kept.append_in_turn = late  # type: ignore[method-assign,assignment]
        async with asyncio.timeout(10):
            assert (await it.writer.append(entry("a"))).fate is Fate.WRITTEN
        assert it.called("append_in_turn") == 3


@pytest.mark.parametrize("written", [True, False])
async def test_a_lost_answer_to_one_in_turn_is_read_back(*, written: bool) -> None:
    async with scene("a") as it:
        it.kept.rows["a"].lock = Crowded()
        (it.faults.after if written else it.faults.before)["append_in_turn"] = [LOST]
        async with asyncio.timeout(10):
            assert (await it.writer.append(entry("a"))).fate is Fate.WRITTEN
        assert it.called("heads") == 1
        assert [event.seq for event in it.kept.events["a"]] == [1, 2]


async def test_what_is_refused_in_its_turn_is_told_and_the_next_is_taken() -> None:
    async with scene("a") as it:
        it.kept.rows["a"].lock = Crowded()
        it.faults.before["append_in_turn"] = [StoreRefused("bad data")]
        async with asyncio.timeout(10):
            with pytest.raises(StoreRefused):
                await it.writer.append(entry("a"))
            assert (await it.writer.append(entry("a"))).fate is Fate.WRITTEN


async def test_an_entry_nobody_waits_for_any_more_does_not_queue() -> None:
    async with scene("a") as it, asyncio.TaskGroup() as group:
        it.kept.rows["a"].lock = Crowded()
        batch = it.kept.append_batch

        async def given_up_meanwhile(entries: Sequence[Append]) -> list[Appended]:
            if it.called("append_batch") == 3:
                given_up.cancel()
                await asyncio.wait([given_up])
            return await batch(entries)

        it.kept.append_batch = given_up_meanwhile  # type: ignore[method-assign,assignment]
        given_up = group.create_task(it.writer.append(entry("a")))
        await asyncio.wait([given_up])
        async with asyncio.timeout(10):
            assert (await it.writer.append(entry("a", events=2))).fate is Fate.WRITTEN
        assert it.called("append_in_turn") == 1
