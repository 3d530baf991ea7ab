"""The journal writer: one a process, it gathers the appends of all its sessions.

While one batch is on its way to Postgres the next one gathers; so the busier the process, the
fewer commits a session costs. Each entry is fenced on its own (epoch and expected head), and each
caller learns the fate of its own entry.

A batch waits for no row, so no busy session holds up the others. An entry whose row was locked goes
apart: it is tried again a little later, and after a few tries it queues for its row as requests do.
A row for which somebody always waits has no gap that another try could hit.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.runtime.errors import StoreRefused, StoreUnavailable
from app.runtime.ports.journal import Append, Appended, Fate, HeadInfo, JournalStore
from app.runtime.ports.process import Clock

MAX_ENTRIES: Final = 128
MAX_BYTES: Final = 4 << 20
_RETRY_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_SKIPPED_S: Final = 0.005
_HASTY: Final = 2
"""So many tries leave an entry whose row is locked to the next one; then it queues for the row."""
_MOST_QUEUING: Final = 2
"""Each that queues holds a connection; those beyond go on trying."""


@dataclass(slots=True)
class _Waiting:
    entry: Append
    done: asyncio.Future[Appended]
    unheard: bool = False
    """An earlier try had no answer: Postgres may still carry it out."""
    skipped: int = 0
    """How many tries found its row locked."""

    @property
    def size(self) -> int:
        return sum(len(event.payload) for event in self.entry.events)


class JournalWriter:
    """Group commit over a `JournalStore`. `run` must be running for appends to be written."""

    def __init__(self, *, store: JournalStore, clock: Clock) -> None:
        """Start with nothing to write."""
        self._store = store
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._something = asyncio.Event()
        self._locked: list[_Waiting] = []
        self._apart: set[str] = set()
        self._queuing = 0

    async def append(self, entry: Append) -> Appended:
        """Write one session's entry; return when its fate is known.

        Raises:
            StoreRefused: when Postgres refuses this very entry.

        """
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(entry, done))
        self._something.set()
        return await done

    async def run(self) -> None:
        """Write batches for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._something.wait()
                for waiting in self._locked:
                    self._apart.add(waiting.entry.session_id)
                    group.create_task(self._go_apart(waiting))
                self._locked.clear()
                await self._write(self._take())

    def _take(self) -> list[_Waiting]:
        """Return the next batch: one entry a session, bounded in number and bytes.

        A session of which an entry is apart has none in it, so that its entries keep their order.
        """
        batch: list[_Waiting] = []
        left: deque[_Waiting] = deque()
        sessions = set(self._apart)
        size = 0
        while self._waiting and len(batch) < MAX_ENTRIES:
            waiting = self._waiting.popleft()
            if waiting.done.cancelled():
                continue
            if waiting.entry.session_id in sessions or (batch and size + waiting.size > MAX_BYTES):
                left.append(waiting)
                continue
            sessions.add(waiting.entry.session_id)
            size += waiting.size
            batch.append(waiting)
        left.extend(self._waiting)
        self._waiting = left
        if all(waiting.entry.session_id in self._apart for waiting in left):
            self._something.clear()
        return batch

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        try:
            fates = await self._store.append_batch([w.entry for w in batch])
        except StoreRefused as refused:
            await self._bisect(batch, refused)
        except StoreUnavailable:
            await self._read_back(batch)
        else:
            await self._settle(batch, fates)

    async def _go_apart(self, waiting: _Waiting) -> None:
        """Deal with an entry whose row is locked, while the others' are written."""
        if waiting.skipped <= _HASTY or self._queuing >= _MOST_QUEUING:
            await self._clock.sleep(_SKIPPED_S)
            self._again(waiting)
        elif not waiting.done.cancelled():
            self._queuing += 1
            await self._write_in_turn(waiting)
            self._queuing -= 1
        self._apart.discard(waiting.entry.session_id)
        self._something.set()

    async def _write_in_turn(self, waiting: _Waiting) -> None:
        try:
            fate = await self._store.append_in_turn(waiting.entry)
        except StoreRefused as refused:
            _refuse(waiting, refused)
        except StoreUnavailable:
            await self._read_back([waiting])
        else:
            await self._settle([waiting], [fate])

    async def _settle(self, batch: Sequence[_Waiting], fates: Sequence[Appended]) -> None:
        """Tell each its fate; one that is fenced off may be so by its own earlier try."""
        doubtful: list[_Waiting] = []
        for waiting, fate in zip(batch, fates, strict=True):
            if fate.fate is Fate.SKIPPED:
                waiting.skipped += 1
                self._locked.append(waiting)
                self._something.set()
            elif fate.fate is Fate.FENCED and waiting.unheard:
                doubtful.append(waiting)
            elif not waiting.done.done():
                waiting.done.set_result(fate)
        if doubtful:
            await self._read_back(doubtful)

    def _again(self, waiting: _Waiting) -> None:
        """Try it again before what its session has to append after it."""
        self._waiting.appendleft(waiting)
        self._something.set()

    async def _bisect(self, batch: Sequence[_Waiting], refused: StoreRefused) -> None:
        """Find the entry that Postgres refuses, so that it does not hold up the others."""
        if len(batch) == 1:
            _refuse(batch[0], refused)
            return
        middle = len(batch) // 2
        await self._write(batch[:middle])
        await self._write(batch[middle:])

    async def _read_back(self, batch: Sequence[_Waiting]) -> None:
        """After a lost answer: learn from the journal itself whether the batch was written."""
        ids = [w.entry.session_id for w in batch]
        heads = await self._heads(ids)
        for waiting in batch:
            fate = _fate(waiting.entry, heads.get(waiting.entry.session_id))
            if fate is None:
                waiting.unheard = True
                self._again(waiting)
            elif not waiting.done.done():
                waiting.done.set_result(fate)

    async def _heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        """Ask until Postgres is back: nothing may be assumed before it has answered."""
        attempt = 0
        while True:
            await self._clock.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1
            with contextlib.suppress(StoreUnavailable):
                return await self._store.heads(ids)


def _refuse(waiting: _Waiting, refused: StoreRefused) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(refused)


def _fate(entry: Append, found: HeadInfo | None) -> Appended | None:
    """Return what became of an entry, or None when it was not written and may be tried again."""
    if found is None or found.epoch != entry.epoch:
        return Appended(Fate.FENCED)
    released = entry.release is not None and found.owner is None
    written = found.head == entry.head and found.head_hash == entry.head_hash
    if written and (entry.events or released):
        return Appended(Fate.WRITTEN, found.inbox_head, released)
    if found.head == entry.expected_head and found.owner is not None:
        return None
    return Appended(Fate.FENCED)
