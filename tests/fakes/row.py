"""A session's row in memory, and the lock on it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from app.runtime.errors import KeyTaken
from app.runtime.ports.journal import Facts
from app.runtime.ports.sessions import (
    Delivery,
    InboxKind,
    InboxRow,
    NewSession,
    Remember,
    Remembered,
    SessionRow,
)
from app.runtime.ports.workers import Claim


@dataclass(slots=True)
class Row:
    """A row, changeable, with its inbox and the subjects in it."""

    new: NewSession
    facts: Facts
    head: int
    head_hash: bytes
    updated_at_us: int
    wake_us: int | None
    timer_us: int | None = None
    owner: str | None = None
    epoch: int = 0
    inbox_head: int = 0
    inbox_seen: int = 0
    claims: int = 0
    ending: int = 0
    view: bytes | None = None
    inbox: list[InboxRow] = field(default_factory=list)
    subjects: set[tuple[str, str]] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def due_at_us(self) -> int:
        return min(at for at in (self.wake_us, self.timer_us) if at is not None)

    def due(self, now_us: int, *, timers: bool = True) -> bool:
        times = (self.wake_us, self.timer_us) if timers else (self.wake_us,)
        return any(at is not None and at <= now_us for at in times)

    def take(self, worker: str, now_us: int) -> Claim:
        takeover = self.owner is not None or self.claims > 0
        self.owner, self.wake_us = worker, None
        self.epoch += 1
        self.claims += 1
        rang_us = self.timer_us if self.timer_us is not None and self.timer_us <= now_us else None
        if rang_us is not None:
            self.timer_us = None
        return Claim(
            session_id=self.new.id,
            tenant=self.new.tenant,
            epoch=self.epoch,
            claims=self.claims,
            key=self.new.key,
            head=self.head,
            head_hash=self.head_hash,
            inbox_head=self.inbox_head,
            inbox_seen=self.inbox_seen,
            takeover=takeover,
            rang_us=rang_us,
        )


def row_of(row: Row, now_us: int, *, alive: bool) -> SessionRow:
    """Return a row as a reader sees it."""
    return replace(
        row.new.row(),
        facts=row.facts,
        head=row.head,
        head_hash=row.head_hash,
        epoch=row.epoch,
        inbox_head=row.inbox_head,
        inbox_seen=row.inbox_seen,
        owner=row.owner,
        owner_alive=alive,
        waking=row.due(now_us, timers=False),
        updated_at_us=row.updated_at_us,
        view=row.view,
        timer_at_us=row.timer_us,
        claims=row.claims,
    )


class Records(Protocol):
    """Where idempotency records are kept."""

    def known(self, tenant: str, key: str) -> Remembered | None: ...

    def keep(self, record: Remember) -> None: ...

    def erase(self, session_id: str) -> None: ...


class Locked:
    """A locked row; what is asked of it happens when the block ends without error."""

    def __init__(self, row: Row, shown: SessionRow, records: Records) -> None:
        self._row = row
        self._shown = shown
        self._records = records
        self._told: list[tuple[InboxRow, str | None]] = []
        self._also: list[Callable[[], None]] = []
        self._wake = False

    @property
    def row(self) -> SessionRow:
        return self._shown

    async def deliver(self, delivery: Delivery) -> int | None:
        taken = {*self._row.subjects, *((told.kind, subject or "") for told, subject in self._told)}
        closing = (InboxKind.CLOSE, "session") in taken
        if closing or (delivery.subject is not None and (delivery.kind, delivery.subject) in taken):
            return None
        n = self._row.inbox_head + len(self._told) + 1
        told = InboxRow(n, delivery.kind, delivery.payload)
        self._told.append((told, delivery.subject))
        return n

    async def newest(self) -> InboxKind | None:
        unseen = self._row.inbox[self._row.inbox_seen :] + [told for told, _ in self._told]
        return unseen[-1].kind if unseen else None

    async def wake(self) -> None:
        self._wake = True

    async def erase(self) -> None:
        self._also.append(lambda: self._records.erase(self._row.new.id))

    async def recall(self, key: str) -> Remembered | None:
        return self._records.known(self._shown.tenant, key)

    async def remember(self, record: Remember) -> None:
        if self._records.known(record.tenant, record.key) is not None:
            raise KeyTaken(record.key)
        self._also.append(lambda: self._records.keep(record))

    def commit(self, now_us: int) -> None:
        for told, subject in self._told:
            self._row.inbox.append(told)
            self._row.inbox_head = told.n
            if told.kind in {InboxKind.CANCEL, InboxKind.CLOSE}:
                self._row.ending = told.n
            if subject is not None:
                self._row.subjects.add((told.kind, subject))
        if self._told or self._wake:
            self._row.wake_us = min(now_us, self._row.wake_us or now_us)
        for change in self._also:
            change()
