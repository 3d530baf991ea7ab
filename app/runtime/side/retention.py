"""Retention: what has served its time leaves the database, in small batches beside the work.

Whole sessions that ended long ago, answers kept under idempotency keys, and messages that are in
the journal since a day. Nothing is removed that somebody may still wait for, resume or need to
tell a repeated request from a new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from app.runtime.ports.process import Clock
from app.runtime.side.jobs import OF_OUR_OWN

LOOK_S: Final = 60.0
"""How often a process looks for what may go; a backlog is worked off without a pause."""
MOST_BATCHES: Final = 20


class Waste(StrEnum):
    """What may leave."""

    SESSIONS = "sessions"
    ANSWERS = "answers"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """For how long things are kept, in seconds; sessions for ever when that is None."""

    sessions_s: float | None
    answers_s: float


class RetentionStore(Protocol):
    """Removes what has served its time, by Postgres's clock."""

    async def waste(self, keeping: Keeping) -> list[Waste]:
        """Return of which kinds there is something to remove."""

    async def remove(self, waste: Waste, keeping: Keeping) -> int:
        """Remove one small batch; return how many of the kind went."""


class Retention:
    """The side job."""

    name = "retention"
    parallel = OF_OUR_OWN

    def __init__(
        self, *, store: RetentionStore, keeping: Keeping, clock: Clock, log: Callable[..., None]
    ) -> None:
        """Look at once."""
        self._store = store
        self._keeping = keeping
        self._clock = clock
        self._log = log
        self._look_s = 0.0

    async def due(self, limit: int) -> Sequence[str]:
        """Return the kinds of which something may go, once in a while."""
        if self._clock.boot_s() < self._look_s:
            return ()
        self._look_s = self._clock.boot_s() + LOOK_S
        return (await self._store.waste(self._keeping))[:limit]

    async def run(self, job_id: str) -> None:
        """Remove some batches of one kind."""
        waste, gone = Waste(job_id), 0
        for _ in range(MOST_BATCHES):
            batch = await self._store.remove(waste, self._keeping)
            gone += batch
            if not batch:
                break
        else:
            self._look_s = 0.0
        if gone:
            self._log("retention.removed", what=waste.value, count=gone)
