"""Migrations: from nothing to today's schema, from several processes, and killed half-way."""

import asyncio
import signal
import sys

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.command import upgrade
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.storage.engine import Engine
from app.storage.migrate import migrate, schema_current
from app.storage.schema import METADATA, is_ours
from tests.house.source import ROOT
from tests.waiting import until

_RUN = (
    "import asyncio, sys; from app.storage.migrate import migrate; "
    "asyncio.run(migrate(sys.argv[1]))"
)


async def _start(dsn: str, code: str = _RUN) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, dsn, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )


async def test_a_second_run_changes_nothing(database_url: str) -> None:
    async with Engine(database_url) as engine:
        assert not await schema_current(engine)
        await migrate(database_url)
        assert await schema_current(engine)
        await migrate(database_url)
        assert await schema_current(engine)


async def test_a_schema_of_a_newer_release_counts_as_current(engine: Engine) -> None:
    await engine.run("update alembic_version set version_num = '9999'")
    assert await schema_current(engine)


@pytest.mark.case("C124")
@pytest.mark.req("STATE-3")
async def test_five_processes_at_once(database_url: str) -> None:
    started = [await _start(database_url) for _ in range(5)]
    assert [await process.wait() for process in started] == [0] * 5
    async with Engine(database_url) as engine:
        assert await schema_current(engine)
        assert await engine.value("select count(*) from alembic_version") == 1


@pytest.mark.case("C124")
async def test_a_holder_that_is_killed_half_way_is_recovered(database_url: str) -> None:
    # The one to be killed stops after its tables are made, still in its transaction.
    stalling = _RUN.replace(
        "asyncio.run(",
        "import app.storage.migrate as m; real = m.upgrade; "
        "m.upgrade = lambda *a: (real(*a), __import__('time').sleep(600)); asyncio.run(",
    )
    stalled = await _start(database_url, stalling)
    watcher = await asyncpg.connect(database_url)
    try:

        async def holds() -> bool:
            return bool(
                await watcher.fetchval(
                    "select exists (select from pg_locks where locktype = 'advisory' and granted)"
                    " and exists (select from pg_stat_activity where state = 'idle in transaction'"
                    " and query ilike '%alembic_version%')"
                )
            )

        await until(holds, what="the lock is held with the tables made")
        second = await _start(database_url)
        stalled.send_signal(signal.SIGKILL)
        assert await second.wait() == 0
        await stalled.wait()
        assert await watcher.fetchval("select to_regclass('sessions') is not null")
    finally:
        await watcher.close()


async def test_tables_in_code_and_in_the_database_agree(migrated_url: str) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(migrated_url),
        poolclass=NullPool,
    )

    def differences(connection: Connection) -> object:
        options = {"compare_type": True, "include_name": is_ours}
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, METADATA)

    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(differences) == []
    finally:
        await engine.dispose()


@pytest.mark.req("STATE-3")
async def test_the_journal_cannot_be_changed(engine: Engine) -> None:
    await engine.run(
        "insert into events values ('ses_1', 1, 1, 'x', null, 1, 0, now(), '\\x00', '\\x00')"
    )
    for statement in ("update events set v = 2", "delete from events", "truncate events"):
        with pytest.raises(Exception, match="append-only"):
            await engine.run(statement)
    async with engine.transaction() as connection:
        await connection.execute("set local surefoot.erasing = 'on'")
        await connection.execute("delete from events")


@pytest.mark.case("C124")
async def test_a_deadlock_with_sessions_that_run_is_tried_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres stops one of the two that wait for each other; it may be the migration."""
    fault = "do $$ begin raise exception using errcode = '40P01'; end $$"
    faults = [fault, fault]

    def upgrade_late(config: Config, revision: str) -> None:
        upgrade(config, revision)
        if faults:
            config.attributes["connection"].exec_driver_sql(faults.pop())

    monkeypatch.setattr("app.storage.migrate.upgrade", upgrade_late)
    await migrate(database_url)
    assert not faults
    async with Engine(database_url) as engine:
        assert await schema_current(engine)
    faults.append("do $$ begin raise exception 'another'; end $$")
    with pytest.raises(DBAPIError, match="another"):
        await migrate(database_url)
