"""Few at a time for one row: who is beyond them waits here, without a connection to Postgres.

A lock is waited for on a connection. Without a bound the requests to one busy session would take
all of the pool, and with it those of every other session.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.runtime.errors import StoreUnavailable


@dataclass(slots=True)
class _Row:
    free: asyncio.Semaphore
    wanted: int = 0


@dataclass(slots=True)
class Turns:
    """Lets `most` at a time at each row, in the order in which they came."""

    most: int
    within_s: float
    _rows: dict[str, _Row] = field(default_factory=dict)

    @asynccontextmanager
    async def at(self, row_id: str) -> AsyncIterator[None]:
        """Hold one of the places at a row.

        Raises:
            StoreUnavailable: when none is free in time.

        """
        row = self._rows.setdefault(row_id, _Row(asyncio.Semaphore(self.most)))
        row.wanted += 1
        try:
            await self._wait(row)
            try:
                yield
            finally:
                row.free.release()
        finally:
            row.wanted -= 1
            if not row.wanted:
                del self._rows[row_id]

    async def _wait(self, row: _Row) -> None:
        try:
            async with asyncio.timeout(self.within_s):
                await row.free.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("Too many wait for this row of Postgres.") from error
