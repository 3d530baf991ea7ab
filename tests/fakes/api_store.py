"""A database for tests of the HTTP edge: sessions, journals, inboxes, tools, all in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf

from app.core.events import ToolRef
from app.core.lifecycle import PendingKind
from app.core.toolbox import ToolSpec
from app.runtime.errors import StoreUnavailable
from app.runtime.explaining.findings import Finding
from app.runtime.ports.journal import Append, Appended, HeadInfo, SealedEvent, Snapshot
from app.runtime.ports.sessions import (
    Delivery,
    InboxKind,
    InboxRow,
    NewSession,
    Remember,
    Remembered,
    SessionRow,
)
from app.runtime.ports.workers import Claim, Owned
from app.runtime.sessions.idempotency import GONE


@dataclass
class FakeStore:
    """All stores at once. `down` makes every call fail; `log` says what was asked."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    events: dict[str, list[SealedEvent]] = field(default_factory=dict)
    inboxes: dict[str, list[Delivery]] = field(default_factory=dict)
    records: dict[tuple[str, str], Remember] = field(default_factory=dict)
    tools: dict[tuple[str, str], list[ToolSpec]] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    down: bool = False
    journal_down: bool = False
    alive: bool = True
    marks_are_old: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def _ask(self) -> None:
        if self.down:
            message = "the database is away"
            raise StoreUnavailable(message)

    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        self._ask()
        async with self.lock:
            if remember is not None:
                found = self.records.get((remember.tenant, remember.key))
                if found is not None:
                    return _remembered(found)
                self.records[remember.tenant, remember.key] = remember
            self.rows[new.id] = new.row()
            self.events[new.id] = list(new.events)
            self.inboxes[new.id] = []
        return None

    async def get(self, tenant: str, session_id: str) -> SessionRow | None:
        self._ask()
        row = self.rows.get(session_id)
        return row if row is not None and row.tenant == tenant else None

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
        self._ask()
        found = [
            row
            for key, row in sorted(self.rows.items(), reverse=True)
            if row.tenant == tenant
            and (after is None or key < after)
            and status in {None, row.status}
            and agent in {None, row.agent}
            and (tool is None or tool in row.facts.tools)
        ]
        return found[:limit]

    async def pending(
        self, tenant: str, kinds: Sequence[PendingKind], *, after: str | None, limit: int
    ) -> list[SessionRow]:
        self._ask()
        found = [
            row
            for key, row in sorted(self.rows.items(), reverse=True)
            if row.tenant == tenant and (after is None or key < after)
        ]
        return [row for row in found if row.facts.pending_kind in kinds][:limit]

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator["FakeLocked | None"]:
        self._ask()
        async with self.lock:
            row = await self.get(tenant, session_id)
            yield None if row is None else FakeLocked(self, row)

    async def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        told = self.inboxes[session_id][after:]
        return [InboxRow(after + n, d.kind, d.payload) for n, d in enumerate(told, start=1)]

    async def recall(self, tenant: str, key: str) -> Remembered | None:
        found = self.records.get((tenant, key))
        return None if found is None else _remembered(found)

    async def begin_remembering(self, record: Remember) -> Remembered | None:
        self._ask()
        found = await self.recall(record.tenant, record.key)
        if found is None:
            self.records[record.tenant, record.key] = record
        return found

    def take(self, record: Remember) -> bool:
        return self.records.setdefault((record.tenant, record.key), record) is record

    async def finish_remembering(self, record: Remember) -> None:
        self.records[record.tenant, record.key] = record

    async def retake_mark(self, record: Remember, older_s: float) -> bool:
        mark = self.records[record.tenant, record.key]
        return self.marks_are_old and mark.status == 0 and older_s > 0

    async def drop_mark(self, record: Remember) -> None:
        if self.records[record.tenant, record.key].status == 0:
            del self.records[record.tenant, record.key]

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        raise NotImplementedError

    async def append_in_turn(self, entry: Append) -> Appended:
        raise NotImplementedError

    async def read(
        self, session_id: str, after: int, limit: int, most_bytes: int | None = None
    ) -> list[SealedEvent]:
        self._ask()
        if self.journal_down:
            message = "the journal is away"
            raise StoreUnavailable(message)
        return bounded(self.events.get(session_id, [])[after : after + limit], most_bytes)

    async def read_many(self, after: Mapping[str, int]) -> dict[str, list[SealedEvent]]:
        return {key: self.events[key][seq:] for key, seq in after.items()}

    async def heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        self._ask()
        rows = [self.rows[key] for key in ids if key in self.rows]
        return {row.id: HeadInfo(row.head, row.head_hash, row.epoch, _idle(row)) for row in rows}

    async def save_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        raise NotImplementedError

    async def latest_snapshot(self, session_id: str) -> Snapshot | None:
        raise NotImplementedError

    async def renew(self, worker: str, lease_s: float) -> None:
        raise NotImplementedError

    async def claim(
        self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]
    ) -> list[Claim]:
        raise NotImplementedError

    async def claim_ending(self, worker: str, limit: int, keys: Sequence[str]) -> list[Claim]:
        raise NotImplementedError

    async def sweep(self) -> int:
        raise NotImplementedError

    async def owned(self, worker: str) -> list[Owned]:
        raise NotImplementedError

    async def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        raise NotImplementedError

    async def remove(self, worker: str) -> None:
        raise NotImplementedError

    async def any_alive(self) -> bool:
        return self.alive

    async def queued(self, most: int) -> int:
        return min(most, sum(row.waking and row.owner is None for row in self.rows.values()))

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        self._ask()
        key = (tenant, spec.name)
        exists = key in self.tools and key not in self.gone
        if exists == create:
            return None
        self.gone.discard(key)
        versions = self.tools.setdefault(key, [])
        versions.append(replace(spec, version=len(versions) + 1))
        return versions[-1]

    async def current(self, tenant: str) -> list[ToolSpec]:
        self._ask()
        kept = [v[-1] for key, v in self.tools.items() if key[0] == tenant and key not in self.gone]
        return sorted(kept, key=lambda spec: spec.name)

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        return next((s for s in self.tools.get((tenant, ref.name), []) if s.ref == ref), None)

    async def delete(self, tenant: str, name: str) -> bool:
        key = (tenant, name)
        if key not in self.tools or key in self.gone:
            return False
        self.gone.add(key)
        return True


class FakeAudit:
    """Sees nothing wrong; what is asked of rows and chains goes to the store."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    async def after(self, session_id: str, limit: int) -> list[str]:
        return sorted(key for key in self._store.rows if key > session_id)[:limit]

    async def newest(self, limit: int) -> list[str]:
        return sorted(self._store.rows, reverse=True)[:limit]

    async def row(self, session_id: str) -> SessionRow | None:
        return self._store.rows.get(session_id)

    async def check(self, ids: Sequence[str], events: int) -> list[Finding]:
        del ids, events
        return []

    async def suspects(self) -> list[Finding]:
        return []


class FakeLocked:
    """A locked row."""

    def __init__(self, store: FakeStore, row: SessionRow) -> None:
        self._store = store
        self.row = row

    async def deliver(self, delivery: Delivery) -> int | None:
        told = self._store.inboxes[self.row.id]
        if any(
            d.kind is InboxKind.CLOSE
            or (d.subject is not None and (d.kind, d.subject) == (delivery.kind, delivery.subject))
            for d in told
        ):
            return None
        told.append(delivery)
        row = replace(self.row, inbox_head=len(told), waking=True)
        self._store.rows[row.id] = row
        return len(told)

    async def newest(self) -> InboxKind | None:
        row = self._store.rows[self.row.id]
        unseen = self._store.inboxes[row.id][row.inbox_seen :]
        return unseen[-1].kind if unseen else None

    async def wake(self) -> None:
        self._store.rows[self.row.id] = replace(self.row, waking=True)

    async def erase(self) -> None:
        key = replace(self.row.key, wrapped=b"")
        self._store.rows[self.row.id] = replace(self.row, key=key, metadata=None, view=None)
        for name, record in self._store.records.items():
            if record.session_id == self.row.id:
                self._store.records[name] = replace(record, body_hash=b"", status=GONE, body=b"")

    async def recall(self, key: str) -> Remembered | None:
        return await self._store.recall(self.row.tenant, key)

    async def remember(self, record: Remember) -> None:
        self._store.records[record.tenant, record.key] = record


def _remembered(found: Remember) -> Remembered:
    return Remembered(found.body_hash, found.status, found.body, found.location)


def bounded(page: list[SealedEvent], most_bytes: int | None) -> list[SealedEvent]:
    """Return the events up to the one with which the payloads reach this size."""
    sizes = list(accumulate((len(event.payload) for event in page), initial=0))
    return [e for e, before in zip(page, sizes, strict=False) if before < (most_bytes or inf)]


def _idle(row: SessionRow) -> bool:
    return row.facts.status not in {"active", "waiting"} and row.inbox_drained and not row.waking
