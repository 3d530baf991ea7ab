"""What every system stands on: servers with real fsync, the scripted model, the tools, a sink."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from app.devstack import (
    PostgresHandle,
    ValkeyHandle,
    embedded_postgres_server,
    embedded_valkey_server,
)

_STOP_S = 30
_COMMITS = 100
Process = asyncio.subprocess.Process


@dataclass
class Ground:
    """The parts, running. `folder` takes logs and profiles."""

    postgres: PostgresHandle
    valkey: ValkeyHandle
    model: Process
    llm: str
    tools: str
    sink: str
    folder: Path
    commit_ms: float
    """What a commit of one row costs here: a session of either service waits for several."""

    def __post_init__(self) -> None:
        """Number the databases."""
        self._numbers = itertools.count(1)

    @property
    def pids(self) -> list[int]:
        """Return the processes that every system shares."""
        return [self.postgres.pid, self.valkey.pid, self.model.pid]

    async def database(self) -> str:
        """Return the address of a new, empty database, and leave Valkey empty too."""
        name = f"bench_{next(self._numbers)}"
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            await connection.execute(f'create database "{name}"')
        finally:
            await connection.close()
        async with Redis.from_url(self.valkey.url) as client:
            await client.flushall()
        return self.postgres.dsn_for(name)


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[Ground]:
    """Start all of it."""
    async with AsyncExitStack() as stack:
        data = stack.enter_context(_disk_folder())
        enter = stack.enter_async_context
        postgres = await enter(embedded_postgres_server(data, durable=True))
        valkey = await enter(embedded_valkey_server(log=folder / "valkey.log"))
        model, llm = await enter(_announced("tests.bench.model", "--script", "bench"))
        _, tools = await enter(_announced("tests.scripted.tools"))
        _, sink = await enter(_announced("tests.bench.sink"))
        commit_ms = await _commit_ms(postgres.dsn)
        yield Ground(postgres, valkey, model, llm, tools, sink, folder, commit_ms)


async def _commit_ms(dsn: str) -> float:
    connection = await asyncpg.connect(dsn)
    took: list[float] = []
    try:
        await connection.execute("create table commits (n int)")
        for n in range(_COMMITS):
            began = time.perf_counter()
            await connection.execute("insert into commits values ($1)", n)
            took.append(time.perf_counter() - began)
    finally:
        await connection.close()
    return statistics.median(took) * 1000


@contextmanager
def _disk_folder() -> Iterator[Path]:
    """A new folder on a disk, not in memory, which the server's own account can pass through."""
    parent = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108 - mkdtemp in it
    folder = Path(tempfile.mkdtemp(prefix="surefoot-bench-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _announced(module: str, *arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a module that prints its address first."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, "--port", "0", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_STOP_S):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise RuntimeError(f"{module} did not start")
        yield process, address
    finally:
        await stop(process)


@asynccontextmanager
async def logged(
    command: list[str], *, log: Path, env: Mapping[str, str]
) -> AsyncIterator[Process]:
    """Run a command with its output in a file."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=out, env={**os.environ, **env}
        )
    try:
        yield process
    finally:
        await stop(process)


async def stop(process: Process) -> None:
    """End a process in an orderly way, and by force when it takes too long."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
