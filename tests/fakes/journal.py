"""The journal in memory."""

from collections.abc import Mapping, Sequence

from app.runtime.records import Append, Appended, Fate, HeadInfo, SealedEvent, Snapshot
from tests.fakes.rows import Row, Tables

ALIVE = ("active", "waiting")


class MemoryJournal:
    """A `JournalStore` on dictionaries; a row whose lock is held is skipped, as in Postgres."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        return [self._append(entry) for entry in batch]

    def _append(self, entry: Append) -> Appended:
        row = self._tables.sessions.get(entry.session_id)
        if row is None or (row.epoch, row.head) != (entry.epoch, entry.expected_head):
            return Appended(Fate.FENCED)
        if row.lock.locked():
            return Appended(Fate.SKIPPED)
        self._tables.events[entry.session_id].extend(entry.events)
        row.head, row.head_hash, row.facts = entry.head, entry.head_hash, entry.facts
        row.inbox_seen = entry.inbox_seen
        row.claims = 0 if entry.answered else row.claims
        row.view = row.view if entry.view is None else entry.view
        row.updated_at_us = self._tables.now_us()
        released = entry.release is not None and row.inbox_head == entry.inbox_seen
        if released and entry.release is not None:
            row.owner, row.wake_us, row.timer_us = None, None, entry.release.timer_us
        return Appended(Fate.WRITTEN, row.inbox_head, released)

    async def read(self, session_id: str, after: int, limit: int) -> list[SealedEvent]:
        found = [e for e in self._tables.events.get(session_id, []) if e.seq > after]
        return found[:limit]

    async def read_many(self, after: Mapping[str, int]) -> dict[str, list[SealedEvent]]:
        return {i: await self.read(i, seq, 1 << 60) for i, seq in after.items()}

    async def heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        rows = {i: self._tables.sessions[i] for i in ids if i in self._tables.sessions}
        return {
            i: HeadInfo(r.head, r.head_hash, r.epoch, self._idle(r), r.owner, r.inbox_head)
            for i, r in rows.items()
        }

    def _idle(self, row: Row) -> bool:
        now = self._tables.now_us()
        waking = row.wake_us is not None and row.wake_us <= now
        drained = row.inbox_head == row.inbox_seen
        return row.facts.status not in ALIVE and drained and row.owner is None and not waking

    async def save_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        older = self._tables.snapshots.get(session_id)
        if older is None or older.seq <= snapshot.seq:
            self._tables.snapshots[session_id] = snapshot

    async def latest_snapshot(self, session_id: str) -> Snapshot | None:
        return self._tables.snapshots.get(session_id)
