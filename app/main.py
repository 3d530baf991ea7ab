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
from app.bootstrap.door import bound, greeting, port_of
from app.devstack import DevStack, DevStackError, FolderInUseError
from app.runtime.errors import StoreUnavailable
from app.settings import Loaded, SettingsError, StartError
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
        raise _no_database(error) from None
    return 0


def dev(data: Path | None, host: str | None, port: int | None) -> int:
    """Serve everything with embedded servers and keys of its own; return the exit code."""
    loaded = settings_for("dev")
    given = {"data": data, "host": host, "port": port}
    loaded = _with(loaded, {name: value for name, value in given.items() if value is not None})
    if faults := loaded.settings.contradictions():
        raise SettingsError(faults)
    try:
        return uvloop.run(_dev(loaded))
    except FolderInUseError as error:
        todo = "Stop that process, or take another folder with --data or SUREFOOT_DATA."
        raise StartError(f"Surefoot cannot start: {error}.", todo) from None
    except DevStackError as error:
        todo = "Another folder is given with --data or SUREFOOT_DATA."
        raise StartError(f"Surefoot cannot start: {error}.", todo) from None
    except StoreUnavailable as error:
        raise _no_database(error) from None


def _no_database(error: StoreUnavailable) -> StartError:
    return StartError(
        f"SUREFOOT_DATABASE_URL: {error}",
        "Check that it names a running Postgres, a user and a database that exist.",
    )


def _with(loaded: Loaded, values: Mapping[str, object]) -> Loaded:
    return replace(loaded, settings=loaded.settings.model_copy(update=values))


async def _dev(loaded: Loaded) -> int:
    settings = loaded.settings
    # The port first: starting two servers only to find it taken costs the user seconds.
    with bound(settings.host, settings.port) as sockets:
        async with DevStack(settings.data) as stack:
            for unused in stack.postgres.unused:
                sys.stderr.write(
                    f"{stack.data} is new and starts empty; the database of an earlier folder at "
                    f"this path is kept, unused, in {unused}\n"
                )
            keys = await asyncio.to_thread(make_dev_keys, stack.data / "keys")
            found = {
                "database_url": settings.database_url or SecretStr(stack.postgres.dsn),
                "redis_url": settings.redis_url or SecretStr(stack.valkey.url),
                "encryption_keys": settings.encryption_keys or SecretStr(keys),
            }
            await migrate_database(found["database_url"].get_secret_value())
            hello = greeting(settings, port_of(sockets), sys.argv[0])
            return await _run(_with(loaded, found), "all", sockets, hello)


async def _serve(loaded: Loaded, role: Literal["all", "api"]) -> int:
    with bound(loaded.settings.host, loaded.settings.port) as sockets:
        return await _run(loaded, role, sockets, None)


async def _run(
    loaded: Loaded, role: Literal["all", "api"], sockets: list[socket.socket], hello: str | None
) -> int:
    async with open_service(loaded, role) as service:
        if service.app is None:
            return 1
        config = uvicorn.Config(
            service.app,
            http=BoundedHead,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=STREAMS_END_S,
        )
        server = _Server(config)
        server.greeting = hello
        await run_until_stopped(service, server, sockets)
        return 0 if server.started else 1


async def run_until_stopped(
    service: Service, server: uvicorn.Server, sockets: list[socket.socket]
) -> None:
    """Run everything this process has until a signal, then drain; a second one ends the drain."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    async with asyncio.TaskGroup() as group:
        background = group.create_task(service.background())
        serving = group.create_task(server.serve(sockets))
        working = group.create_task(service.work())
        serving.add_done_callback(lambda _: stop.set())
        await stop.wait()
        service.stop()
        server.should_exit = True
        hurrying = group.create_task(_cut_short(hurry, serving, working))
        await asyncio.wait((serving, working))
        hurrying.cancel()
        background.cancel()


async def _cut_short(hurry: asyncio.Event, *tasks: asyncio.Task[None]) -> None:
    """End what still drains at the second signal; its sessions are taken over like after a kill."""
    await hurry.wait()
    for task in tasks:
        task.cancel()
