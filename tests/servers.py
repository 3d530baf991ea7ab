"""A real Postgres and a real Valkey for the tests: one of each per run, started on demand.

Fixtures
    databases        session   makes and drops databases on the run's Postgres (see `Databases`)
    database_url     function  the address of a new, empty database, dropped after the test
    redis_url        function  the address of the run's Valkey, emptied before the test
    postgres_server  session   the server's handle (stop, restart, kill); tests that use it must
                               leave it running
    valkey_server    session   the same for Valkey

`SUREFOOT_TEST_DATABASE_URL` and `SUREFOOT_TEST_REDIS_URL` put given servers in their place; then
`postgres_server` and `valkey_server` skip, because those are not ours to stop.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from app.devstack import (
    PostgresHandle,
    ValkeyHandle,
    embedded_postgres_server,
    embedded_valkey_server,
)
from app.devstack.process import alive

DATABASE_URL = "SUREFOOT_TEST_DATABASE_URL"
REDIS_URL = "SUREFOOT_TEST_REDIS_URL"
_PREFIX = "surefoot-test-"

T = TypeVar("T")


class Databases:
    """Makes databases on one server, in some ten milliseconds each.

    A schema is built once per run and copied from then on:

        template = await databases.template("migrated", migrate)   # migrate(dsn) runs once
        dsn = await databases.create(template)
    """

    def __init__(self, admin_dsn: str) -> None:
        self._admin_dsn = admin_dsn
        self._names = (f"t{os.getpid()}_{n}" for n in itertools.count(1))
        self._templates: dict[str, str] = {}

    async def create(self, template: str | None = None) -> str:
        """Make a database, empty or a copy of a template, and return its address."""
        name = next(self._names)
        source = f' template "{template}" strategy file_copy' if template else ""
        await self._execute(f'create database "{name}"{source}')
        return self._dsn(name)

    async def template(self, key: str, prepare: Callable[[str], Awaitable[None]]) -> str:
        """The name of a database that `prepare(dsn)` has filled; made at the first call for `key`.

        `prepare` must have closed its connections when it returns.
        """
        if key not in self._templates:
            dsn = await self.create()
            await prepare(dsn)
            self._templates[key] = urlsplit(dsn).path.lstrip("/")
        return self._templates[key]

    async def drop(self, dsn: str) -> None:
        """Drop a database that `create` made, cutting the connections to it."""
        name = urlsplit(dsn).path.lstrip("/")
        await self._execute(f'drop database if exists "{name}" with (force)')

    async def drop_templates(self) -> None:
        """Drop what `template` made; called when the run ends."""
        for name in self._templates.values():
            await self._execute(f'drop database if exists "{name}" with (force)')

    def _dsn(self, name: str) -> str:
        return urlsplit(self._admin_dsn)._replace(path="/" + name).geturl()

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._admin_dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresHandle]:
    if DATABASE_URL in os.environ:
        pytest.skip(f"{DATABASE_URL} names a server that is not ours to stop")
    with server_folder() as folder, run_aside(embedded_postgres_server(folder, durable=False)) as h:
        yield h


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyHandle]:
    if REDIS_URL in os.environ:
        pytest.skip(f"{REDIS_URL} names a server that is not ours to stop")
    with run_aside(embedded_valkey_server()) as handle:
        yield handle


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    given = os.environ.get(DATABASE_URL)
    made = Databases(given or request.getfixturevalue("postgres_server").dsn)
    yield made
    if given:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, made.drop_templates()).result()


@pytest.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    dsn = await databases.create()
    yield dsn
    await databases.drop(dsn)


@pytest.fixture
async def redis_url(request: pytest.FixtureRequest) -> str:
    url: str = os.environ.get(REDIS_URL) or request.getfixturevalue("valkey_server").url
    async with Redis.from_url(url) as client:
        await client.flushall()
    return url


@contextmanager
def server_folder() -> Iterator[Path]:
    """A new folder for a server's data that the server's own account can pass through.

    In memory where there is room: making a database is making some 300 files, 10 ms there and up
    to 300 on a slow disk.
    """
    parent = _memory()
    _remove_stale(Path(parent or tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    memory = "/dev/shm"  # noqa: S108 - mkdtemp makes a new folder in it
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    return memory if roomy else None


def _remove_stale(parent: Path) -> None:
    """Remove what runs that were killed left behind."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not alive(int(pid)) and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def run_aside(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Hold an asynchronous context open from synchronous code, on a loop in a thread of its own."""
    with ThreadPoolExecutor(1, thread_name_prefix="server") as thread:
        runner = asyncio.Runner()

        def run(coroutine: Coroutine[None, None, object]) -> object:
            return thread.submit(runner.run, coroutine).result()

        async def enter() -> T:
            return await server.__aenter__()

        async def leave() -> None:
            await server.__aexit__(None, None, None)

        try:
            entered = thread.submit(runner.run, enter()).result()
            try:
                yield entered
            finally:
                run(leave())
        finally:
            thread.submit(runner.close).result()
