"""Sessions, inboxes and idempotency records in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.runtime.errors import KeyTaken
from app.runtime.records import (
    Delivery,
    InboxKind,
    InboxRow,
    NewSession,
    Remember,
    Remembered,
    SessionRow,
)
from tests.fakes.rows import Row, Tables


class MemoryLocked:
    """Changes are gathered and made when the block ends, as a transaction would."""

    def __init__(self, tables: Tables, row: Row) -> None:
        self._tables = tables
        self._row = row
        self._seen = tables.row(row)
        self._inbox: list[tuple[InboxRow, str | None]] = []
        self._changes: list[Callable[[], None]] = []

    @property
    def row(self) -> SessionRow:
        return self._seen

    async def deliver(self, delivery: Delivery) -> int | None:
        known = {*self._tables.subjects, *(self._subject(r, s) for r, s in self._inbox if s)}
        if (self._seen.id, InboxKind.CLOSE, "session") in known:
            return None
        n = self._row.inbox_head + len(self._inbox) + 1
        row = InboxRow(n, delivery.kind, delivery.payload)
        if delivery.subject is not None and self._subject(row, delivery.subject) in known:
            return None
        self._inbox.append((row, delivery.subject))
        return n

    def _subject(self, row: InboxRow, subject: str) -> tuple[str, str, str]:
        return (self._seen.id, row.kind, subject)

    async def wake(self) -> None:
        self._changes.append(self._wake)

    def _wake(self) -> None:
        self._row.wake_us = self._tables.now_us()

    async def recall(self, key: str) -> Remembered | None:
        return self._tables.remembered.get((self._seen.tenant, key))

    async def remember(self, record: Remember) -> None:
        if (record.tenant, record.key) in self._tables.remembered:
            raise KeyTaken(record.key)
        self._changes.append(lambda: keep(self._tables, record))

    def commit(self) -> None:
        for row, subject in self._inbox:
            self._tables.inbox[self._seen.id].append(row)
            self._row.inbox_head = row.n
            self._wake()
            if subject is not None:
                self._tables.subjects.add(self._subject(row, subject))
        for change in self._changes:
            change()


def keep(tables: Tables, r: Remember) -> None:
    made = Remembered(r.body_hash, r.status, r.body)
    tables.remembered[r.tenant, r.key] = made


class MemorySessions:
    """A `SessionStore` on dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        if remember is not None:
            known = await self.recall(remember.tenant, remember.key)
            if known is not None:
                return known
            keep(self._tables, remember)
        self._tables.add(new)
        return None

    async def get(self, tenant: str, session_id: str) -> SessionRow | None:
        row = self._tables.sessions.get(session_id)
        return self._tables.row(row) if row and row.new.tenant == tenant else None

    async def page(
        self,
        tenant: str,
        *,
        after: str | None,
        limit: int,
        status: str | None,
        agent: str | None,
        tool: str | None,
    ) -> list[SessionRow]:
        rows = (self._tables.row(self._tables.sessions[i]) for i in sorted(self._tables.sessions))
        found = [
            r
            for r in rows
            if r.tenant == tenant
            and (after is None or r.id < after)
            and status in (None, r.status)
            and agent in (None, r.agent)
            and (tool is None or tool in r.facts.tools)
        ]
        return found[::-1][:limit]

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[MemoryLocked | None]:
        row = self._tables.sessions.get(session_id)
        if row is None or row.new.tenant != tenant:
            yield None
            return
        async with row.lock:
            locked = MemoryLocked(self._tables, row)
            yield locked
            locked.commit()

    async def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        return [r for r in self._tables.inbox.get(session_id, []) if r.n > after]

    async def recall(self, tenant: str, key: str) -> Remembered | None:
        return self._tables.remembered.get((tenant, key))

    async def begin_remembering(self, record: Remember) -> Remembered | None:
        known = await self.recall(record.tenant, record.key)
        if known is None:
            keep(self._tables, record)
        return known

    async def finish_remembering(self, record: Remember) -> None:
        known = await self.recall(record.tenant, record.key)
        if known is None or known.status == 0:
            keep(self._tables, record)
