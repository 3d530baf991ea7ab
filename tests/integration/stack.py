"""Processes of the service over one database: start, stop, kill, freeze, and look at their logs.

    async with stacks.open() as stack:                  # a new database, migrated
        one = await stack.start("all")                  # `surefoot serve --role all`, ready
        client = stack.client(one)
        ...
        one.kill()                                      # kill -9
        two = await stack.start("worker", point="append:3:before")

Leaving the block ends the processes, checks their logs, and looks at every session they left: none
may break an invariant, and a replay decides each as it was decided. Not so where a mechanism was
taken out, or where the test says that it broke something itself (`stack.sound = False`).
"""

import base64
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx2

from app.storage.keys import MasterKeys, parse_keys
from app.storage.migrate import migrate
from tests.integration.client import Client
from tests.integration.killable import Action
from tests.integration.process import ROOT, Nursery, Process, Role
from tests.servers import Databases
from tests.sound import divergences, findings
from tests.waiting import until

Schema = tuple[str, Callable[[str], Awaitable[None]]]
"""A name for it, and what brings an empty database to it."""
TODAY: Schema = ("migrated", migrate)
LEASE_S = 4.0
MODEL = "scripted"
START_S = 60.0
"""A start takes 0.3 s; on a machine that is busy with other things much more."""
_KEY = base64.b64encode(bytes(range(32))).decode()
_PORTS = range(20_000, 32_000)
"""Below those which the system gives to outgoing connections."""
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""This process of the tests, and how many there are at once."""
_BAD = (
    "Traceback",
    "Failed to detach",
    "session.crashed",
    "session.unfoldable",
    "session.poison",
    "was never retrieved",
    "was never awaited",
)
"""What no log may hold."""


@dataclass(slots=True, kw_only=True)
class Stack:
    """The processes of one test, over one database."""

    dsn: str
    env: dict[str, str]
    folder: Path
    nursery: Nursery
    processes: list[Process] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    sound: bool = True

    async def start(
        self,
        role: Role = "all",
        *,
        point: str | None = None,
        action: Action = "kill",
        record: Iterable[str] = (),
        without: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> Process:
        """Start a process and return when it is ready (has a lease, answers).

        `point` is where it is struck, and `action` by what (`tests.integration.killable`);
        the calls of the ports in `record` are written beside its log (`Process.points`);
        `without` names mechanisms that are taken out of it (`tests.integration.without`), whose log
        is not looked at then.
        """
        process, settings = self._next(role, env)
        process.checked = not without
        self.sound = self.sound and not without
        before = await self.workers()
        process.pid, process.ended = await self.nursery.fork(
            argv=["serve", "--role", role],
            env=settings,
            log=str(process.log),
            point=point,
            action=action,
            record=list(record),
            without=list(without),
        )
        if ready:
            await self.ready(process, before)
        return process

    async def spawn(
        self, role: Role = "all", *, code: Path = ROOT, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start `surefoot serve` from nothing, as an operator does, and return when it is ready.

        `code` is the folder with the release that is started.
        """
        process, settings = self._next(role, {"PYTHONPATH": str(code), **(env or {})})
        before = await self.workers()
        with process.log.open("ab") as log:
            command = (sys.executable, "-m", "app.cli.main", "serve", "--role", role)
            made = subprocess.Popen(  # noqa: ASYNC220 - waited for in a thread, whatever loop runs
                command, cwd=code, env=settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        process.pid = made.pid
        threading.Thread(target=lambda: process.ended.set_result(made.wait()), daemon=True).start()
        await self.ready(process, before)
        return process

    def _next(self, role: Role, env: Mapping[str, str] | None) -> tuple[Process, dict[str, str]]:
        port = free_port()
        log = self.folder / f"{len(self.processes)}-{role}.log"
        process = Process(role=role, pid=0, port=port, log=log, ended=Future())
        self.processes.append(process)
        return process, {**self.env, "SUREFOOT_PORT": str(port), **(env or {})}

    async def ready(self, process: Process, before: set[str]) -> None:
        """Return when a process takes requests and, where it works, has its lease."""

        async def is_ready() -> bool:
            assert process.alive, process.text()
            if process.role != "worker" and not await _answers(process.url):
                return False
            new = await self.workers() - before if process.role != "api" else set()
            process.worker = next(iter(new), None)
            return process.role == "api" or bool(new)

        await until(is_ready, timeout_s=START_S, what=f"{process.role} is ready")

    def client(self, process: Process) -> Client:
        """Return a client of this process's API."""
        client = Client(process.url)
        self.clients.append(client)
        return client

    async def rows(self, statement: str, *args: object) -> list[asyncpg.Record]:
        """Ask the database."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    @property
    def keys(self) -> MasterKeys:
        """Return the master keys of its processes."""
        return MasterKeys(parse_keys(self.env["SUREFOOT_ENCRYPTION_KEYS"]))

    async def owner(self, session_id: str) -> str | None:
        """Return which worker owns a session."""
        rows = await self.rows("select owner from sessions where id = $1", session_id)
        owner: str | None = rows[0]["owner"]
        return owner

    async def epoch(self, session_id: str) -> int:
        """Return how often a session was claimed."""
        rows = await self.rows("select epoch from sessions where id = $1", session_id)
        epoch: int = rows[0]["epoch"]
        return epoch

    async def lease_over(self, process: Process) -> None:
        """Return when the lease of a process that is dead or frozen has run out."""

        async def over() -> bool:
            rows = await self.rows(
                "select 1 from workers where id = $1 and lease_until > now()", process.worker
            )
            return not rows

        await until(over, timeout_s=60, what="the lease is over")

    async def workers(self) -> set[str]:
        return {row["id"] for row in await self.rows("select id from workers")}

    async def close(self, *, check: bool) -> None:
        """End everything and look into the logs."""
        for client in self.clients:
            await client.close()
        for process in self.processes:
            process.thaw()
            process.kill()
        for process in self.processes:
            await process.wait()
        if check:
            self.check_logs()
        if check and self.sound:
            keys = self.env["SUREFOOT_ENCRYPTION_KEYS"]
            broken = await findings(self.dsn, keys)
            assert not broken, broken
            diverged = await divergences(self.dsn, keys)
            assert not diverged, diverged

    def check_logs(self) -> None:
        """Fail if a process logged what none may log."""
        for process in self.processes:
            if process.checked:
                found = bad_lines(process)
                assert not found, f"{process.log.name}: {found}\n{process.text()[-6000:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Opens stacks on the servers of the run."""

    databases: Databases
    redis_url: str
    nursery: Nursery
    folder: Path

    @asynccontextmanager
    async def open(
        self,
        *,
        model: str | None = None,
        lease_s: float = LEASE_S,
        env: Mapping[str, str] | None = None,
        schema: Schema = TODAY,
    ) -> AsyncIterator[Stack]:
        """A stack over a new database with this schema, using the model at this address."""
        dsn = await self.databases.create(await self.databases.template(*schema))
        folder = self.folder / urlsplit(dsn).path.lstrip("/")
        folder.mkdir()
        stack = Stack(
            dsn=dsn,
            env={**_environment(dsn, self.redis_url, model, lease_s), **(env or {})},
            folder=folder,
            nursery=self.nursery,
        )
        whole = False
        try:
            yield stack
            whole = True
        finally:
            await stack.close(check=whole)
            await self.databases.drop(dsn)


def _environment(dsn: str, redis_url: str, model: str | None, lease_s: float) -> dict[str, str]:
    asked = {} if model is None else {"LLM_BASE_URL": model, "LLM_MODEL": MODEL}
    settings = {
        "DATABASE_URL": dsn,
        "REDIS_URL": redis_url,
        "ENCRYPTION_KEYS": f"test:{_KEY}",
        "EGRESS_ALLOW": "127.0.0.0/8",
        "AUTH": "off",
        "LEASE_S": str(lease_s),
        "DRAIN_S": "3",
        "POOL_SIZE": "4",
        **asked,
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {
        "PYTHONPATH": str(ROOT),
        **kept,
        **{f"SUREFOOT_{name}": value for name, value in settings.items()},
    }


def _ports() -> Iterator[int]:
    """This process's part of the ports, none twice before all were given."""
    mine = _PORTS[int(_WORKER) % _WORKERS :: _WORKERS]
    start = random.SystemRandom().randrange(len(mine))  # other runs may be on this machine
    return itertools.cycle((*mine[start:], *mine[:start]))


_NEXT_PORTS = _ports()


def free_port() -> int:
    """Return a port that nobody uses now, and that no outgoing connection will be given."""
    while True:
        port = next(_NEXT_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def _answers(url: str) -> bool:
    try:
        async with httpx2.AsyncClient(base_url=url) as client:
            return (await client.get("/readyz")).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


def bad_lines(process: Process) -> list[str]:
    """Return the lines of a process's log that no log may hold."""
    return [line for line in process.text().splitlines() if any(bad in line for bad in _BAD)]


def seen(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the types of events."""
    return [event["type"] for event in events]
