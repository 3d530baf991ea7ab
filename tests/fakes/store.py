"""Postgres in memory: journal, sessions, inboxes, workers and leases over the same rows.

Each statement takes a moment, has its effect at once in the middle of it, and then its answer is
on the way. Switches take away one protection each, so that a test can show what it is good for.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, TypeVar

from app.core.lifecycle import PendingKind
from app.runtime.ports.journal import Append, Appended, Fate, HeadInfo, SealedEvent, Snapshot
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import InboxRow, NewSession, Remember, Remembered, SessionRow
from app.runtime.ports.workers import Claim, Owned
from app.runtime.sessions.idempotency import GONE
from tests.fakes.api_store import bounded
from tests.fakes.row import Locked, Row, row_of

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Switches:
    """Protections of the store; all are on in Postgres."""

    epoch: bool = True
    owner: bool = True
    head: bool = True
    inbox_at_release: bool = True
    living_owner: bool = True


def statement(
    body: Callable[Concatenate["MemoryStore", P], T],
) -> Callable[Concatenate["MemoryStore", P], Coroutine[object, object, T]]:
    """Give a method the two ways of a statement: there and back."""

    async def run(self: "MemoryStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(self.way_s)
        answer = body(self, *args, **kwargs)
        await asyncio.sleep(self.way_s)
        return answer

    return run


@dataclass
class MemoryStore:
    """A `JournalStore`, `SessionStore` and `WorkerStore` over one set of dictionaries."""

    clock: Clock
    way_s: float = 0.0005
    on: Switches = field(default_factory=Switches)
    rows: dict[str, Row] = field(default_factory=dict)
    events: dict[str, list[SealedEvent]] = field(default_factory=lambda: defaultdict(list))
    leases: dict[str, int] = field(default_factory=dict)
    remembered: dict[tuple[str, str], Remembered] = field(default_factory=dict)
    answered: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    kept_us: dict[tuple[str, str], int] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    watched: list[asyncio.Future[None]] = field(default_factory=list)

    def _alive(self, worker: str | None) -> bool:
        return worker is not None and self.leases.get(worker, 0) > self.clock.now_us()

    # --- the journal

    @statement
    def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        assert len({entry.session_id for entry in batch}) == len(batch)
        self.batches.append([entry.session_id for entry in batch])
        fates = [
            Appended(Fate.SKIPPED) if self._skips(entry) else self._append(entry) for entry in batch
        ]
        self._tell()
        return fates

    async def append_in_turn(self, entry: Append) -> Appended:
        row = self.rows.get(entry.session_id)
        async with row.lock if row else asyncio.Lock():
            return await self.append_locked(entry)

    @statement
    def append_locked(self, entry: Append) -> Appended:
        """Append under the row's lock, which is the caller's."""
        self.batches.append([entry.session_id])
        fate = self._append(entry)
        self._tell()
        return fate

    def _tell(self) -> None:
        for watching in self.watched:
            if not watching.done():
                watching.set_result(None)
        self.watched.clear()

    def _fenced(self, row: Row, entry: Append) -> bool:
        late = self.on.epoch and row.epoch != entry.epoch
        moved = self.on.head and row.head != entry.expected_head
        return late or moved or (self.on.owner and row.owner is None)

    def _skips(self, entry: Append) -> bool:
        row = self.rows.get(entry.session_id)
        return row is not None and row.lock.locked() and not self._fenced(row, entry)

    def _append(self, entry: Append) -> Appended:
        row = self.rows.get(entry.session_id)
        if row is None or self._fenced(row, entry):
            return Appended(Fate.FENCED)
        if entry.unless_behind and row.inbox_head > entry.inbox_seen:
            return Appended(Fate.BEHIND, row.inbox_head)
        self.events[entry.session_id].extend(entry.events)
        row.head, row.head_hash, row.facts = entry.head, entry.head_hash, entry.facts
        row.inbox_seen = entry.inbox_seen
        row.claims = 0 if entry.answered else row.claims
        row.view = row.view if entry.view is None else entry.view
        row.updated_at_us = self.clock.now_us()
        drained = row.inbox_head == entry.inbox_seen or not self.on.inbox_at_release
        row.timer_us = None
        if entry.release is None or not drained:
            return Appended(Fate.WRITTEN, row.inbox_head, released=False)
        row.owner, row.wake_us, row.timer_us = None, None, entry.release.timer_us
        if row.timer_us is not None and entry.release.now_us is not None:
            row.timer_us += self.clock.now_us() - entry.release.now_us
        return Appended(Fate.WRITTEN, row.inbox_head, released=True)

    @statement
    def read(
        self, session_id: str, after: int, limit: int, most_bytes: int | None = None
    ) -> list[SealedEvent]:
        page = [e for e in self.events.get(session_id, []) if e.seq > after][:limit]
        return bounded(page, most_bytes)

    @statement
    def read_many(self, after: Mapping[str, int]) -> dict[str, list[SealedEvent]]:
        found = {i: self.events.get(i, []) for i in after}
        return {i: [e for e in found[i] if e.seq > seq] for i, seq in after.items()}

    @statement
    def heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        return {i: self._head(self.rows[i]) for i in ids if i in self.rows}

    def _head(self, row: Row) -> HeadInfo:
        ended = row.facts.status not in {"active", "waiting"}
        rests = row.owner is None and not row.due(self.clock.now_us(), timers=False)
        idle = ended and rests and row.inbox_head == row.inbox_seen
        return HeadInfo(row.head, row.head_hash, row.epoch, idle, row.owner, row.inbox_head)

    @statement
    def save_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        older = self.snapshots.get(session_id)
        if older is None or older.seq <= snapshot.seq:
            self.snapshots[session_id] = snapshot

    @statement
    def latest_snapshot(self, session_id: str) -> Snapshot | None:
        return self.snapshots.get(session_id)

    # --- sessions and inboxes

    @statement
    def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        if remember is not None:
            known = self.remembered.get((remember.tenant, remember.key))
            if known is not None:
                return known
            self.keep(remember)
        now = self.clock.now_us()
        head = new.events[-1].seq
        self.rows[new.id] = Row(new, new.facts, head, new.head_hash, new.created_at_us, now)
        self.events[new.id] = list(new.events)
        return None

    @statement
    def get(self, tenant: str, session_id: str) -> SessionRow | None:
        row = self.rows.get(session_id)
        return None if row is None or row.new.tenant != tenant else self._shown(row)

    def _shown(self, row: Row) -> SessionRow:
        return row_of(row, self.clock.now_us(), alive=self._alive(row.owner))

    @statement
    def page(
        self,
        tenant: str,
        *,
        after: str | None,
        limit: int,
        status: str | None,
        agent: str | None,
        tool: str | None,
    ) -> list[SessionRow]:
        shown = [self._shown(self.rows[i]) for i in sorted(self.rows, reverse=True)]
        return [
            row
            for row in shown
            if row.tenant == tenant
            and (after is None or row.id < after)
            and status in {None, row.status}
            and agent in {None, row.agent}
            and (tool is None or tool in row.facts.tools)
        ][:limit]

    @statement
    def pending(
        self, tenant: str, kinds: Sequence[PendingKind], *, after: str | None, limit: int
    ) -> list[SessionRow]:
        shown = [self._shown(self.rows[i]) for i in sorted(self.rows, reverse=True)]
        return [
            row
            for row in shown
            if row.tenant == tenant
            and (after is None or row.id < after)
            and row.facts.pending_kind in kinds
        ][:limit]

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[Locked | None]:
        row = self.rows.get(session_id)
        if row is None or row.new.tenant != tenant:
            yield None
            return
        async with row.lock:
            await asyncio.sleep(self.way_s)
            locked = Locked(row, self._shown(row), self)
            yield locked
            await asyncio.sleep(self.way_s)
            locked.commit(self.clock.now_us())

    @statement
    def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        row = self.rows.get(session_id)
        return [] if row is None else [told for told in row.inbox if told.n > after]

    @statement
    def recall(self, tenant: str, key: str) -> Remembered | None:
        return self.known(tenant, key)

    @statement
    def begin_remembering(self, record: Remember) -> Remembered | None:
        known = self.known(record.tenant, record.key)
        if known is None:
            self.keep(record)
        return known

    @statement
    def finish_remembering(self, record: Remember) -> None:
        known = self.known(record.tenant, record.key)
        if known is None or known.status == 0:
            self.keep(record)

    @statement
    def retake_mark(self, record: Remember, older_s: float) -> bool:
        key = (record.tenant, record.key)
        known, now = self.remembered.get(key), self.clock.now_us()
        if known is None or known.status or self.kept_us[key] >= now - older_s * 1_000_000:
            return False
        self.kept_us[key] = now
        return True

    @statement
    def drop_mark(self, record: Remember) -> None:
        known = self.known(record.tenant, record.key)
        if known is not None and known.status == 0:
            del self.remembered[record.tenant, record.key]

    def known(self, tenant: str, key: str) -> Remembered | None:
        return self.remembered.get((tenant, key))

    def take(self, record: Remember) -> bool:
        if self.known(record.tenant, record.key) is not None:
            return False
        self.keep(record)
        return True

    def keep(self, record: Remember) -> None:
        made = Remembered(record.body_hash, record.status, record.body, record.location)
        self.kept_us[record.tenant, record.key] = self.clock.now_us()
        self.remembered[record.tenant, record.key] = made
        if record.session_id is not None:
            self.answered[record.session_id].append((record.tenant, record.key))

    # --- workers

    @statement
    def renew(self, worker: str, lease_s: float) -> None:
        self.leases[worker] = self.clock.now_us() + round(lease_s * 1_000_000)

    @statement
    def claim(self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]) -> list[Claim]:
        now = self.clock.now_us()
        if not self._alive(worker):
            return []
        mine = [r for r in self.rows.values() if r.new.key.key_id in keys]
        due = [r for r in mine if r.due(now) and self._free(r)]
        taken: list[Row] = []
        of_tenant: Counter[str] = Counter()
        for row in sorted(due, key=Row.due_at_us):
            if len(taken) < limit and of_tenant[row.new.tenant] < per_tenant:
                of_tenant[row.new.tenant] += 1
                taken.append(row)
        return [row.take(worker, now) for row in taken]

    @statement
    def claim_ending(self, worker: str, limit: int, keys: Sequence[str]) -> list[Claim]:
        now = self.clock.now_us()
        if not self._alive(worker):
            return []
        mine = [r for r in self.rows.values() if r.new.key.key_id in keys]
        asked = [r for r in mine if r.ending > r.inbox_seen and r.due(now, timers=False)]
        due = [r for r in asked if self._free(r)]
        return [row.take(worker, now) for row in sorted(due, key=Row.due_at_us)[:limit]]

    def _free(self, row: Row) -> bool:
        owned = self.on.living_owner and self._alive(row.owner)
        return not row.lock.locked() and not owned

    @statement
    def sweep(self) -> int:
        now = self.clock.now_us()
        owned = [r for r in self.rows.values() if r.owner is not None and r.wake_us is None]
        lost = [r for r in owned if self._free(r)]
        for row in lost:
            row.wake_us = now
        return len(lost)

    @statement
    def owned(self, worker: str) -> list[Owned]:
        mine = [(i, r) for i, r in self.rows.items() if r.owner == worker]
        return [Owned(i, r.epoch, r.inbox_head > r.inbox_seen) for i, r in mine]

    @statement
    def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        row = self.rows[session_id]
        if (row.owner, row.epoch) == (worker, epoch):
            row.claims = max(0, row.claims - blameless)
            row.owner, row.wake_us = None, self.clock.now_us()

    @statement
    def remove(self, worker: str) -> None:
        self.leases.pop(worker, None)
        for row in self.rows.values():
            if row.owner == worker and row.wake_us is None:
                row.wake_us = self.clock.now_us()

    @statement
    def any_alive(self) -> bool:
        return any(self._alive(worker) for worker in self.leases)

    @statement
    def queued(self, most: int) -> int:
        now = self.clock.now_us()
        waiting = [r for r in self.rows.values() if r.owner is None and r.due(now, timers=False)]
        return min(most, len(waiting))

    # --- what a test does behind everybody's back

    async def next_append(self, within_s: float = 1.0) -> None:
        """Return once something was appended, or after this long."""
        watching: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watched.append(watching)
        await asyncio.wait([watching], timeout=within_s)

    def erase(self, session_id: str) -> None:
        row = self.rows[session_id]
        row.new = replace(row.new, key=replace(row.new.key, wrapped=b""), metadata=None)
        row.view = None
        self.snapshots.pop(session_id, None)
        for name in self.answered.get(session_id, ()):
            self.remembered[name] = Remembered(b"", GONE, b"")
