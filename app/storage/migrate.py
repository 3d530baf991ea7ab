"""Bringing a database to today's schema, safely from several processes at once.

All revisions run in one transaction under an advisory lock: whoever comes second waits and then
finds nothing to do, and a holder that is killed leaves nothing behind (Postgres rolls back and
frees the lock when the connection ends).
"""

import asyncio
from functools import cache
from pathlib import Path
from typing import Final

import asyncpg
from alembic.command import upgrade
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import migrations
from app.runtime.errors import StoreUnavailable
from app.storage.engine import Engine

_LOCK: Final = 0x5375_7265_666F_6F74
"""The advisory lock's number: "Surefoot" in ASCII."""
_WAIT_FOR_LOCK: Final = "60s"
_WAIT_FOR_TABLE: Final = "5s"
_IDLE_HOLDER: Final = "30s"

_DEADLOCK: Final = "40P01"
_TRIES: Final = 10
_PAUSE_S: Final = 0.2
"""Revisions lock one table after the other while sessions use them, in orders of their own. Of two
that wait for each other Postgres stops one; when that is us, nothing was changed: from the start.
"""


async def migrate(dsn: str) -> None:
    """Run the revisions which the database lacks.

    Raises:
        StoreUnavailable: when no connection can be made; it says why.

    """

    async def connect() -> asyncpg.Connection:
        try:
            return await asyncpg.connect(dsn, statement_cache_size=0)
        except (OSError, ValueError, asyncpg.PostgresError) as error:
            reason = str(error) or type(error).__name__
            raise StoreUnavailable(f"the database cannot be reached: {reason}") from error

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                async with engine.begin() as connection:
                    await connection.run_sync(_upgrade)
            except DBAPIError as error:
                if not tries_left or getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    # A holder whose machine vanished is cut by the server after a while; the others outwait it.
    connection.exec_driver_sql(f"set local idle_in_transaction_session_timeout = '{_IDLE_HOLDER}'")
    connection.exec_driver_sql(f"set local lock_timeout = '{_WAIT_FOR_LOCK}'")
    connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
    # From here on a lock is one on a table that sessions are using: better give up than block.
    connection.exec_driver_sql(f"set local lock_timeout = '{_WAIT_FOR_TABLE}'")
    config = _config()
    config.attributes["connection"] = connection
    upgrade(config, "head")


async def schema_current(engine: Engine) -> bool:
    """Return whether the schema is at this code's revision, or at one that is newer than it.

    A newer release may have migrated already while processes of this one still serve.
    """
    if await engine.value("select to_regclass('alembic_version') is null"):
        return False
    at = await engine.value("select version_num from alembic_version")
    head, known = _revisions()
    return at is not None and (at == head or at not in known)


@cache
def _revisions() -> tuple[str | None, frozenset[str]]:
    """Return this code's revision and those that lead to it; they are read from files once."""
    script = ScriptDirectory.from_config(_config())
    known = frozenset(revision.revision for revision in script.walk_revisions())
    return script.get_current_head(), known


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config
