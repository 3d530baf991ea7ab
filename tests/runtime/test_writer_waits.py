"""How long the journal writer waits, and what it makes of a session that nobody owns any more."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Fate
from tests.fakes.clock import LoopClock
from tests.fakes.interposed import Faults, interposed
from tests.fakes.store import MemoryStore
from tests.runtime.entries import entry, put
from tests.runtime.test_writer import LOST


class Watched:
    """A writer over a store in memory, with the times of the calls it makes."""

    def __init__(self) -> None:
        self.kept, self.faults, self.clock = (
            MemoryStore(LoopClock(), way_s=0),
            Faults(),
            LoopClock(),
        )
        self.calls: list[tuple[str, float]] = []
        self.then: Callable[[str], None] = lambda _name: None
        self.writer = JournalWriter(store=interposed(self.kept, self._between), clock=self.clock)

    async def _between(self, name: str, call: Callable[[], Awaitable[object]]) -> object:
        self.calls.append((name, self.clock.boot_s()))
        self.then(name)
        return await self.faults(name, call)

    def waits(self, name: str) -> list[float]:
        times = [at for called, at in self.calls if called == name]
        return [round(after - before, 3) for before, after in pairwise(times)]


async def test_an_outage_is_asked_about_less_and_less_often() -> None:
    it = Watched()
    await put(it.kept, "a")
    it.faults.before["append_batch"] = [LOST]
    it.faults.before["heads"] = [LOST] * 6
    async with asyncio.TaskGroup() as group:
        running = group.create_task(it.writer.run())
        assert (await it.writer.append(entry("a"))).fate is Fate.WRITTEN
        running.cancel()
    (_, failed), (_, asked) = it.calls[:2]
    assert round(asked - failed, 3) == 0.05
    assert it.waits("heads") == [0.1, 0.2, 0.5, 1.0, 1.0, 1.0]


async def test_a_locked_row_is_waited_for_and_a_free_one_is_not() -> None:
    it = Watched()
    await put(it.kept, "a", "b")
    lock = it.kept.rows["a"].lock
    await lock.acquire()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(it.writer.run())
        held = group.create_task(it.writer.append(entry("a")))
        await asyncio.sleep(0.05)
        lock.release()
        await held
        assert set(it.waits("append_batch")) == {0.005}
        del it.calls[:]
        for head in (1, 2, 3):
            await it.writer.append(entry("b", after=head))
        assert it.waits("append_batch") == [0, 0]
        running.cancel()


@pytest.mark.req("STATE-4")
async def test_what_was_given_up_after_its_append_was_not_released_by_it() -> None:
    it = Watched()
    await put(it.kept, "a")
    it.faults.after["append_batch"] = [LOST]

    def given_up(name: str) -> None:
        if name == "heads":
            it.kept.rows["a"].owner = None

    it.then = given_up
    async with asyncio.TaskGroup() as group:
        running = group.create_task(it.writer.run())
        done = await it.writer.append(entry("a"))
        running.cancel()
    assert (done.fate, done.released) == (Fate.WRITTEN, False)
