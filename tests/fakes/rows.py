"""What the fakes of storage share: the tables as dictionaries, and the time."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from app.runtime.records import (
    Facts,
    InboxRow,
    NewSession,
    Remembered,
    SealedEvent,
    SessionRow,
    Snapshot,
)


def system_now_us() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class Row:
    """A session's row, changeable."""

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
    view: bytes | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def due(self, now_us: int) -> bool:
        times = (self.wake_us, self.timer_us)
        return any(at is not None and at <= now_us for at in times)


@dataclass(slots=True)
class Tables:
    """Everything that the fakes of one database hold in common."""

    now_us: Callable[[], int] = system_now_us
    sessions: dict[str, Row] = field(default_factory=dict)
    events: dict[str, list[SealedEvent]] = field(default_factory=lambda: defaultdict(list))
    inbox: dict[str, list[InboxRow]] = field(default_factory=lambda: defaultdict(list))
    subjects: set[tuple[str, str, str]] = field(default_factory=set)
    workers: dict[str, int] = field(default_factory=dict)
    remembered: dict[tuple[str, str], Remembered] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)

    def alive(self, worker: str | None) -> bool:
        return worker is not None and self.workers.get(worker, 0) > self.now_us()

    def row(self, of: Row) -> SessionRow:
        new, now = of.new, self.now_us()
        return SessionRow(
            id=new.id,
            tenant=new.tenant,
            agent=new.agent,
            agent_version=new.agent_version,
            model=new.model,
            mode=new.mode,
            prompt=new.prompt,
            facts=of.facts,
            key=new.key,
            head=of.head,
            head_hash=of.head_hash,
            epoch=of.epoch,
            inbox_head=of.inbox_head,
            inbox_seen=of.inbox_seen,
            owner=of.owner,
            owner_alive=self.alive(of.owner),
            waking=of.wake_us is not None and of.wake_us <= now,
            created_at_us=new.created_at_us,
            updated_at_us=of.updated_at_us,
            parent=new.parent,
            metadata=new.metadata,
            view=of.view,
        )

    def add(self, new: NewSession) -> None:
        head = new.events[-1].seq if new.events else 0
        now = self.now_us()
        self.sessions[new.id] = Row(new, new.facts, head, new.head_hash, new.created_at_us, now)
        self.events[new.id] = list(new.events)
