"""Connections to Postgres: a small pool, a limit on every wait, one way for errors to come out.

Two kinds of errors leave: `StoreUnavailable` for what passes by itself (no connection, a timeout, a
deadlock), where a statement may or may not have been committed, and `StoreRefused` for what would
be refused again.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self

import asyncpg

from app.runtime.errors import StoreRefused, StoreUnavailable
from app.storage.turns import Turns

_PASSING: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    # The disk (class 58): an operator mends it, and no session is at fault.
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    # A primary that became a standby: the next connection may reach the new primary.
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidCachedStatementError,
    # The tables of this release are not there yet: migrations bring them.
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)
_TRANSACTION_TIMEOUT_SINCE: Final = 17


@contextmanager
def translated() -> Iterator[None]:
    """Turn what asyncpg raises into the errors of the ports."""
    try:
        yield
    except _PASSING as error:
        raise StoreUnavailable(f"Postgres: {type(error).__name__} {error}") from error
    except asyncpg.PostgresError as error:
        raise StoreRefused(f"Postgres refused: {error}") from error


class Engine:
    """A pool of connections to one database, opened on first use.

    `lease_s` bounds every wait inside Postgres: a statement that outlives the lease could still
    hold its locks when the session has another owner. Behind a pooler in transaction mode
    (`pooled`) nothing may be kept on a connection: no prepared statements, no settings; there the
    client's own timeout remains.

    The requests' connections can all be waiting, and the lease must be renewed nevertheless: `kept`
    is a connection apart. Of the requests to one row few wait on a connection (`turns`).
    """

    def __init__(
        self, dsn: str, *, lease_s: float = 15.0, size: int = 10, pooled: bool = False
    ) -> None:
        """Open nothing yet."""
        self._dsn = dsn
        self._lease_s = lease_s
        self._size = size
        self._pooled = pooled
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._kept: asyncpg.Pool[asyncpg.Record] | None = None
        self.turns = Turns(most=max(1, size // 4), within_s=lease_s * 0.6)

    @property
    def lease_s(self) -> float:
        """Return the lease that the timeouts stay below."""
        return self._lease_s

    async def __aenter__(self) -> Self:
        """Make the pools; the first statement makes the first connection."""
        with translated():
            self._pool = await self._of(self._size)
            self._kept = await self._of(1)
        return self

    async def _of(self, size: int) -> "asyncpg.Pool[asyncpg.Record]":
        return await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=size,
            timeout=self._lease_s / 3,
            command_timeout=self._lease_s * 0.6,
            statement_cache_size=0 if self._pooled else 200,
            server_settings=self._settings(),
            init=None if self._pooled else self._limit_transactions,
            reset=_keep_as_it_is,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close the connections; those that do not answer are cut."""
        pools, self._pool, self._kept = (self._pool, self._kept), None, None
        for pool in pools:
            if pool is not None:
                pool.terminate()

    def _settings(self) -> dict[str, str]:
        if self._pooled:
            return {}
        milliseconds = int(self._lease_s * 1000)
        return {
            "application_name": "surefoot",
            "jit": "off",
            # Our statements mean the same whatever the arguments; planning them anew each time was
            # half of what Postgres spent on a session.
            "plan_cache_mode": "force_generic_plan",
            # A plan is kept for as long as its connection, and the first are made on empty tables,
            # where a walk over all rows looks cheap. Every statement of ours has an index.
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "statement_timeout": str(milliseconds // 2),
            "lock_timeout": str(milliseconds // 4),
            "idle_in_transaction_session_timeout": str(milliseconds // 2),
        }

    async def _limit_transactions(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        if connection.get_server_version().major >= _TRANSACTION_TIMEOUT_SINCE:
            await connection.execute(f"set transaction_timeout = {int(self._lease_s * 600)}")

    @property
    def pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        """Return the open pool."""
        if self._pool is None:
            raise StoreUnavailable("The connections to Postgres are closed.")
        return self._pool

    async def rows(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement and return its rows."""
        with translated():
            return await self.pool.fetch(sql, *args)

    async def row(self, sql: str, *args: object) -> asyncpg.Record | None:
        """Run one statement and return its first row."""
        with translated():
            return await self.pool.fetchrow(sql, *args)

    async def value(self, sql: str, *args: object) -> object:
        """Run one statement and return the first column of its first row."""
        with translated():
            value: object = await self.pool.fetchval(sql, *args)
            return value

    async def run_apart(self, sql: str, *args: object) -> None:
        """Run a statement that must not wait for a connection of the requests."""
        if self._kept is None:
            raise StoreUnavailable("The connections to Postgres are closed.")
        with translated():
            await self._kept.execute(sql, *args)

    async def run(self, sql: str, *args: object) -> int:
        """Run one statement and return how many rows it changed."""
        with translated():
            tag = await self.pool.execute(sql, *args)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    @asynccontextmanager
    async def transaction(
        self,
    ) -> "AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]":
        """Hold a connection in a transaction, committed when the block ends without error."""
        with translated():
            async with self.pool.acquire() as connection, connection.transaction():
                yield connection


async def _keep_as_it_is(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Spare the round trip of a full reset: nothing here changes a connection's settings.

    An open transaction is rolled back by asyncpg before this is called.
    """
