"""The bound of the queue: past it, what would start work is refused, not taken and left lying.

Nobody counts for a request that is taken. The number is an estimate: what Postgres counted about a
second ago, and what was taken here since, claimed or not; only before it refuses anything a process
counts anew, ten times a second at most. Several processes may together go over the bound by what
they take within a second.
"""

import contextlib
from typing import Final

from app.runtime.errors import PortError
from app.runtime.ports.process import Clock
from app.runtime.ports.workers import WorkerStore
from app.runtime.refusals import Overloaded

COUNT_S: Final = 1.0
RECOUNT_S: Final = 0.1


class Admission:
    """Says whether work may be started. Without `run` only what was taken here is counted."""

    def __init__(self, *, workers: WorkerStore, clock: Clock, most: int) -> None:
        """Allow so many sessions to be due without an owner."""
        self._workers = workers
        self._clock = clock
        self._most = most
        self._counted = 0
        self._taken = 0
        self._stale = True
        self._counted_s = 0.0

    @property
    def _full(self) -> bool:
        return self._counted + self._taken >= self._most

    async def look(self) -> None:
        """Count anew where the estimate would refuse; not to be awaited under a row's lock."""
        if self._full and self._clock.boot_s() - self._counted_s >= RECOUNT_S:
            await self._count()

    def check(self) -> None:
        """Let one more session start.

        Raises:
            Overloaded: when too many wait for a worker already.

        """
        if self._full:
            detail = (
                f"{self._most} sessions wait for a worker already, as many as this service takes "
                "(SUREFOOT_MAX_QUEUED). Nothing was started; send it again later. More "
                "workers, or more slots for them, make the queue shorter."
            )
            raise Overloaded(detail)

    def took(self) -> None:
        """Note that one more session is due."""
        self._taken += 1
        self._stale = True

    async def run(self) -> None:
        """Count each second, for ever; while nothing waits and nothing is taken, not at all."""
        while True:
            if self._stale:
                with contextlib.suppress(PortError):  # the next round asks again
                    await self._count()
            await self._clock.sleep(COUNT_S)

    async def _count(self) -> None:
        self._counted_s = self._clock.boot_s()
        before = self._taken
        counted = await self._workers.queued(self._most)
        self._counted, self._taken = counted, self._taken - before
        self._stale = counted > 0 or self._taken > 0
