"""Leases and claims in memory."""

from collections import Counter
from collections.abc import Sequence

from app.runtime.records import Claim, Owned
from tests.fakes.rows import Row, Tables


class MemoryWorkers:
    """A `WorkerStore` on dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def renew(self, worker: str, lease_s: float) -> None:
        self._tables.workers[worker] = self._tables.now_us() + int(lease_s * 1_000_000)

    async def claim(
        self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]
    ) -> list[Claim]:
        if not self._tables.alive(worker):
            return []
        now = self._tables.now_us()
        mine = [r for r in self._tables.sessions.values() if r.new.key.key_id in keys]
        free = [r for r in mine if r.due(now) and self._free(r)]
        free.sort(key=lambda r: min(t for t in (r.wake_us, r.timer_us) if t is not None))
        taken: list[Row] = []
        of_tenant: Counter[str] = Counter()
        for row in free:
            if len(taken) < limit and of_tenant[row.new.tenant] < per_tenant:
                of_tenant[row.new.tenant] += 1
                taken.append(row)
        return [self._take(row, worker, now) for row in taken]

    def _free(self, row: Row) -> bool:
        return not row.lock.locked() and not self._tables.alive(row.owner)

    def _take(self, row: Row, worker: str, now: int) -> Claim:
        takeover = row.owner is not None or row.claims > 0
        row.owner, row.wake_us = worker, None
        row.epoch += 1
        row.claims += 1
        if row.timer_us is not None and row.timer_us <= now:
            row.timer_us = None
        return Claim(
            session_id=row.new.id,
            tenant=row.new.tenant,
            epoch=row.epoch,
            claims=row.claims,
            key=row.new.key,
            head=row.head,
            head_hash=row.head_hash,
            inbox_head=row.inbox_head,
            inbox_seen=row.inbox_seen,
            takeover=takeover,
        )

    async def sweep(self) -> int:
        lost = [
            r
            for r in self._tables.sessions.values()
            if r.owner is not None and r.wake_us is None and self._free(r)
        ]
        for row in lost:
            row.wake_us = self._tables.now_us()
        return len(lost)

    async def owned(self, worker: str) -> list[Owned]:
        rows = sorted(self._tables.sessions.items())
        mine = [(i, r) for i, r in rows if r.owner == worker]
        return [Owned(i, r.epoch, r.inbox_head > r.inbox_seen) for i, r in mine]

    async def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        row = self._tables.sessions[session_id]
        if (row.owner, row.epoch) == (worker, epoch):
            row.claims = max(0, row.claims - blameless)
            row.owner, row.wake_us = None, self._tables.now_us()

    async def remove(self, worker: str) -> None:
        self._tables.workers.pop(worker, None)
        for row in self._tables.sessions.values():
            if row.owner == worker and row.wake_us is None:
                row.wake_us = self._tables.now_us()

    async def any_alive(self) -> bool:
        return any(map(self._tables.alive, self._tables.workers))
