"""Workers: their leases, and the sessions they claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.runtime.ports.keys import WrappedKey


@dataclass(frozen=True, slots=True)
class Claim:
    """A session this worker has just taken. `takeover` says that an owner was lost before.

    `rang_us` is the session's timer when it had come due by Postgres's clock. Only that clock
    counts: by the worker's own the timer may be due too early, or not yet.
    """

    session_id: str
    tenant: str
    epoch: int
    claims: int
    key: WrappedKey
    head: int
    head_hash: bytes
    inbox_head: int
    inbox_seen: int
    takeover: bool
    rang_us: int | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """A session that a worker owns; `behind` when its inbox holds unseen rows."""

    session_id: str
    epoch: int
    behind: bool


class WorkerStore(Protocol):
    """Leases and claims, all by Postgres's clock."""

    async def renew(self, worker: str, lease_s: float) -> None:
        """Create or renew this worker's lease."""

    async def claim(
        self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]
    ) -> list[Claim]:
        """Take up to `limit` sessions that are due, have no living owner, and use these keys."""

    async def claim_ending(self, worker: str, limit: int, keys: Sequence[str]) -> list[Claim]:
        """Take up to `limit` of those due sessions whose inbox holds a cancel or a close."""

    async def sweep(self) -> int:
        """Make due every session whose owner's lease is over; return how many."""

    async def owned(self, worker: str) -> list[Owned]:
        """Return the sessions which this worker owns now."""

    async def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        """Let a session go without an append, due at once; blameless: the claim does not count."""

    async def remove(self, worker: str) -> None:
        """End this worker's lease."""

    async def any_alive(self) -> bool:
        """Return whether some worker's lease holds."""

    async def queued(self, most: int) -> int:
        """Return how many sessions are due and have no owner; counted no further than `most`."""
