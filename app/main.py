"""The server process: the HTTP API, alone or (`all`, `dev`) with a worker beside it."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import uvicorn
import uvloop
from pydantic import SecretStr
from typing_extensions import override

from app.api.connection import BoundedHead
from app.bootstrap import Service, open_service, settings_for
from app.devstack import DevStack, DevStackError
from app.runtime.errors import StoreUnavailable
from app.settings import Loaded, SettingsError
from app.storage.keys import make_dev_keys
from app.storage.migrate import migrate as migrate_database

STREAMS_END_S: Final = 3


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the process drains before it stops."""

    greeting: str | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and self.greeting is not None:
            sys.stdout.write(self.greeting)
            sys.stdout.flush()

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(role: Literal["all", "api"]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; return the exit code."""
    return uvloop.run(_serve(settings_for("serve"), role))


def migrate() -> int:
    """Bring the configured database to this release's schema; return the exit code."""
    loaded = settings_for("migrate")
    url = loaded.settings.database_url
    try:
        uvloop.run(migrate_database(url.get_secret_value() if url else ""))
    except StoreUnavailable as error:
        raise SettingsError([f"SUREFOOT_DATABASE_URL: {error}"]) from None
    return 0


def dev(data: Path | None, host: str | None, port: int | None) -> int:
    """Serve everything with embedded servers and keys of its own; return the exit code."""
    loaded = settings_for("dev")
    given = {"data": data, "host": host, "port": port}
    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        return uvloop.run(_dev(_with(loaded, wanted)))
    except DevStackError as error:
        raise SettingsError([str(error)]) from None


def _with(loaded: Loaded, values: Mapping[str, object]) -> Loaded:
    return replace(loaded, settings=loaded.settings.model_copy(update=values))


async def _dev(loaded: Loaded) -> int:
    settings = loaded.settings
    async with DevStack(settings.data) as stack:
        for unused in stack.postgres.unused:
            sys.stderr.write(
                f"{stack.data} is new and starts empty; the database of an earlier folder at this "
                f"path is kept, unused, in {unused}\n"
            )
        keys = await asyncio.to_thread(make_dev_keys, stack.data / "keys")
        found = {
            "database_url": settings.database_url or SecretStr(stack.postgres.dsn),
            "redis_url": settings.redis_url or SecretStr(stack.valkey.url),
            "encryption_keys": settings.encryption_keys or SecretStr(keys),
        }
        await migrate_database(found["database_url"].get_secret_value())
        return await _serve(_with(loaded, found), "all", greet=True)


async def _serve(loaded: Loaded, role: Literal["all", "api"], *, greet: bool = False) -> int:
    async with open_service(loaded, role) as service:
        if service.app is None:
            return 1
        config = uvicorn.Config(
            service.app,
            host=loaded.settings.host,
            port=loaded.settings.port,
            http=BoundedHead,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=STREAMS_END_S,
        )
        server = _Server(config)
        if greet:
            server.greeting = _greeting(loaded)
        await run_until_stopped(service, server)
        return 0 if server.started else 1


def _greeting(loaded: Loaded) -> str:
    settings = loaded.settings
    url = f"http://{settings.host}:{settings.port}"
    model = (
        settings.llm_model or "the built-in demo model (set SUREFOOT_LLM_BASE_URL for a real one)"
    )
    task = "a product costs 299, 20 % off, then minus 50, how much is it?"
    return f"""
Surefoot serves {url} with {model}.

Try next:
  surefoot run --follow "{task}"
  curl -s {url}/v1/sessions -H 'content-type: application/json' -d '{{"task": "{task}"}}'
  open {url}/docs
"""


async def run_until_stopped(service: Service, server: uvicorn.Server) -> None:
    """Run everything this process has until a signal, then drain."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        background = group.create_task(service.background())
        serving = group.create_task(server.serve())
        working = group.create_task(service.work())
        serving.add_done_callback(lambda _: stop.set())
        await stop.wait()
        service.stop()
        server.should_exit = True
        await serving
        await working
        background.cancel()
