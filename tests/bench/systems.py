"""The systems that are measured, each started fresh on an empty database."""

import base64
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from typing_extensions import override

from tests.bench import floor
from tests.bench.ground import Ground, Process, free_port, logged
from tests.bench.work import TOOL_CALLS
from tests.waiting import until

_READY_S: Final = 60.0
EVENTS: Final = 4 + 9 * TOOL_CALLS + 7
"""What our stream brings: creation, claim and start, nine events a step with a call, the end."""


@dataclass(frozen=True)
class Cell:
    """One combination of what is varied."""

    inflight: int
    slow: bool = False
    stream: bool = False
    over_http: bool = False

    def arguments(self) -> list[str]:
        """Return it as the drivers' options."""
        given = {"--slow": self.slow, "--stream": self.stream, "--over-http": self.over_http}
        return ["--inflight", str(self.inflight), *(name for name, on in given.items() if on)]

    @override
    def __str__(self) -> str:
        """Return it as it is read."""
        parts = [
            "tools over HTTP" if self.over_http else "",
            "200 ms model" if self.slow else "0 ms model",
            f"{self.inflight} in flight",
            "streamed" if self.stream else "waited",
        ]
        return ", ".join(part for part in parts if part)


@dataclass
class Running:
    """A started system. `groups` are the roots of its processes; a bare loop is its own driver."""

    command: Callable[[Cell], list[str]]
    groups: dict[str, list[int]] = field(default_factory=dict)
    bare: bool = False
    url: str = ""
    processes: list[Process] = field(default_factory=list)


@dataclass(frozen=True)
class System:
    """Something to measure: in these cells, on so many cores (None: in all, on all)."""

    name: str
    start: Callable[[Ground], AbstractAsyncContextManager[Running]]
    streams: bool = True
    http_tool: bool = False
    cells: tuple[Cell, ...] | None = None
    cores: int | None = None


def _driver(url: str, events: int) -> Callable[[Cell], list[str]]:
    base = [sys.executable, "-m", "tests.bench.driver", "--url", url, "--events", str(events)]
    return lambda cell: [*base, *cell.arguments()]


def bare_loop(client: str) -> System:
    """Return the loop without any service."""

    @asynccontextmanager
    async def start(ground: Ground) -> AsyncIterator[Running]:
        base = [sys.executable, "-m", "tests.bench.loops", "--client", client]
        base += ["--llm", ground.llm]
        yield Running(lambda cell: [*base, *cell.arguments()], bare=True)

    return System(f"bare loop, {client}", start, streams=False)


@asynccontextmanager
async def _floor(ground: Ground) -> AsyncIterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.floor", "--port", str(port)]
    command += ["--database", await ground.database(), "--llm", ground.llm]
    url = f"http://127.0.0.1:{port}"
    async with logged(command, log=ground.folder / "floor.log", env={}) as process:
        await _ready(url, ground.folder / "floor.log")
        groups = {"service": [process.pid], "postgres": [ground.postgres.pid]}
        yield Running(_driver(url, floor.EVENTS), groups)


FLOOR: Final = System("floor service", _floor)


def surefoot(
    name: str,
    *,
    roles: tuple[str, ...] = ("api", "worker"),
    env: Callable[[Ground], Mapping[str, str]] = lambda _ground: {},
    profile: bool = False,
    cells: tuple[Cell, ...] | None = None,
    cores: int | None = None,
) -> System:
    """Return ours, with these processes."""

    @asynccontextmanager
    async def start(ground: Ground) -> AsyncIterator[Running]:
        log = ground.folder / "surefoot.log"
        database = await ground.database()
        ports = [free_port() for _ in roles]
        url = f"http://127.0.0.1:{ports[0]}"
        processes: list[Process] = []
        async with AsyncExitStack() as stack:
            settings = {**_environment(ground, database), **env(ground)}
            await _migrate(settings, log)
            for role, port in zip(roles, ports, strict=True):
                process = await stack.enter_async_context(
                    logged(
                        [*_command(role, ground.folder if profile else None)],
                        log=log,
                        env={**settings, "SUREFOOT_PORT": str(port)},
                    )
                )
                processes.append(process)
            await _ready(url, log)
            await _register_tool(url, ground.tools)
            servers = {"postgres": [ground.postgres.pid], "valkey": [ground.valkey.pid]}
            pids = [process.pid for process in processes]
            groups = {"service": pids, **servers}
            yield Running(_driver(url, EVENTS), groups, url=url, processes=processes)

    return System(name, start, http_tool=True, cells=cells, cores=cores)


def _environment(ground: Ground, database: str) -> dict[str, str]:
    return {
        "SUREFOOT_DATABASE_URL": database,
        "SUREFOOT_REDIS_URL": ground.valkey.url,
        "SUREFOOT_LLM_BASE_URL": ground.llm,
        "SUREFOOT_LLM_MODEL": "scripted",
        "SUREFOOT_ENCRYPTION_KEYS": f"k1:{base64.b64encode(os.urandom(32)).decode()}",
        "SUREFOOT_EGRESS_ALLOW": "127.0.0.0/8",
        "SUREFOOT_AUTH": "off",
    }


def _command(role: str, profiles: Path | None) -> list[str]:
    profiled = ["tests.bench.profiled", str(profiles / f"{role}.prof")] if profiles else []
    return [sys.executable, "-m", *(profiled or ["app.cli.main"]), "serve", "--role", role]


async def _migrate(env: Mapping[str, str], log: Path) -> None:
    command = [sys.executable, "-m", "app.cli.main", "migrate"]
    async with logged(command, log=log, env=env) as process:
        if await process.wait() != 0:
            raise RuntimeError(f"migrate failed:\n{_tail(log)}")


async def _ready(url: str, log: Path) -> None:
    """Return once the service says that it is."""
    try:
        async with aiohttp.ClientSession() as http:
            await until(lambda: _is_ready(http, url), timeout_s=_READY_S)
    except TimeoutError:
        raise RuntimeError(f"{url} does not get ready:\n{_tail(log)}") from None


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/readyz") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def _register_tool(url: str, tools: str) -> None:
    """Register the one tool over HTTP."""
    spec: dict[str, object] = {
        "name": "echo",
        "kind": "http",
        "description": "Give a text back.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        "http": {"method": "POST", "url": f"{tools}/echo"},
        "effect": "read",
    }
    async with aiohttp.ClientSession() as http, http.post(f"{url}/v1/tools", json=spec) as answer:
        if answer.status != 201:
            raise RuntimeError(f"the tool was refused: {await answer.text()}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]
