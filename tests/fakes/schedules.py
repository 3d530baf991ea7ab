"""Schedules in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import Remember
from app.runtime.side.schedule_records import MOST_RUNS, Outcome, Run, ScheduleRow, Seen


@dataclass
class MemorySchedules:
    """A `ScheduleStore`. `take` keeps an idempotency record unless its key is taken."""

    clock: Clock
    take: Callable[[Remember], bool]
    rows: dict[str, ScheduleRow] = field(default_factory=dict)
    noted: dict[str, dict[int, Run]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def create(self, row: ScheduleRow) -> None:
        self.rows[row.id] = row

    async def get(self, tenant: str, schedule_id: str) -> ScheduleRow | None:
        row = self.rows.get(schedule_id)
        return row if row is not None and row.tenant == tenant else None

    async def page(self, tenant: str, *, after: str | None, limit: int) -> list[ScheduleRow]:
        rows = [self.rows[key] for key in sorted(self.rows, reverse=True)]
        mine = [r for r in rows if r.tenant == tenant and (after is None or r.id < after)]
        return mine[:limit]

    @asynccontextmanager
    async def locked(self, tenant: str, schedule_id: str) -> AsyncIterator["LockedRow | None"]:
        async with self.lock:
            row = await self.get(tenant, schedule_id)
            if row is None:
                yield None
                return
            locked = LockedRow(self, Seen(row, self.clock.now_us()))
            yield locked
            locked.commit()

    async def due(self, limit: int) -> Sequence[str]:
        now = self.clock.now_us()
        rows = sorted((r for r in self.rows.values() if r.due(now)), key=lambda r: r.next_us or 0)
        return [row.id for row in rows[:limit]]

    async def find(self, schedule_id: str) -> Seen | None:
        row = self.rows.get(schedule_id)
        return None if row is None else Seen(row, self.clock.now_us())

    async def advance(self, row: ScheduleRow, run: Run, next_us: int | None) -> bool:
        now = self.rows.get(row.id)
        if now is None:
            return False
        moved = (now.version, now.next_us) == (row.version, row.next_us)
        if moved:
            told = replace(now, last_us=run.at_us) if run.outcome is not Outcome.SKIPPED else now
            self.rows[row.id] = replace(
                told,
                next_us=next_us,
                retry_us=None,
                last_session_id=run.session_id or now.last_session_id,
                last_error=run.error if run.outcome is Outcome.FAILED else None,
            )
        if moved or run.session_id is not None:
            self._keep(row.id, run)
        return moved

    async def postpone(self, row: ScheduleRow, error: str, wait_s: float) -> None:
        now = self.rows.get(row.id)
        if now is not None and (now.version, now.next_us) == (row.version, row.next_us):
            retry_us = self.clock.now_us() + round(wait_s * 1_000_000)
            self.rows[row.id] = replace(now, retry_us=retry_us, last_error=error)

    async def note(self, row: ScheduleRow, run: Run) -> None:
        now = self.rows.get(row.id)
        if now is not None:
            session_id = run.session_id or now.last_session_id
            self.rows[row.id] = replace(now, last_us=run.at_us, last_session_id=session_id)
            self._keep(row.id, run)

    def _keep(self, schedule_id: str, run: Run) -> None:
        runs = self.noted.setdefault(schedule_id, {})
        known = runs.setdefault(run.due_us, run)
        if known.session_id is None and run.session_id is not None and not run.by_hand:
            runs[run.due_us] = run
        for due_us in sorted(runs)[:-MOST_RUNS]:
            del runs[due_us]

    async def runs(self, schedule_id: str, limit: int) -> list[Run]:
        runs = self.noted.get(schedule_id, {})
        return [runs[due] for due in sorted(runs, reverse=True)[:limit]]


class LockedRow:
    """A schedule under its lock; what is asked of it happens when the block ends without error."""

    def __init__(self, store: MemorySchedules, seen: Seen) -> None:
        self._store = store
        self.seen = seen
        self._saved: ScheduleRow | None = seen.row

    async def save(self, row: ScheduleRow) -> None:
        self._saved = row

    async def delete(self) -> None:
        self._saved = None

    async def forestall(self, record: Remember) -> bool:
        return self._store.take(record)

    def commit(self) -> None:
        if self._saved is None:
            self._store.rows.pop(self.seen.row.id, None)
            self._store.noted.pop(self.seen.row.id, None)
        else:
            self._store.rows[self.seen.row.id] = self._saved
