"""A watch over all sessions: none is alive without an owner or a reason for long."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

import asyncpg

LOOKS_S: Final = 0.4
SLACK_S: Final = 5.0
"""For how long after the end of its owner's lease a session may be without one.

One that waits for its time (a call in doubt is asked about only when it can be under way no more)
needs none until then.
"""
GONE: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What a connection gives while Postgres stops and starts."""
_ORPHANS: Final = """
select s.id from sessions s
where (s.status = 'active' or s.inbox_head > s.inbox_seen) and s.status <> 'closed'
    and (s.owner is null or not exists (
        select from workers w where w.id = s.owner and w.lease_until > now()))
    and (s.timer_at is null or s.timer_at <= now())
"""


@dataclass(slots=True)
class Watch:
    """Runs beside a history. What it cannot see, because Postgres is away, does not count."""

    dsn: str
    slack_s: float = SLACK_S
    faults: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    _since: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOKS_S)
            try:
                orphans = await self._orphans()
            except GONE:
                self._since.clear()
                continue
            now = time.monotonic()
            self._since = {i: self._since.get(i, now) for i in orphans}
            for session_id, since in self._since.items():
                self.longest_s = max(self.longest_s, now - since)
                if now - since > self.slack_s:
                    self.faults.append(f"{session_id} has had no owner for {now - since:.1f} s")

    async def _orphans(self) -> list[str]:
        connection = await asyncpg.connect(self.dsn, timeout=2)
        try:
            return [row["id"] for row in await connection.fetch(_ORPHANS)]
        finally:
            await connection.close(timeout=2)
