"""The server process: the HTTP API, alone or (`all`, `dev`) with a worker beside it."""

import asyncio
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import uvloop
from pydantic import SecretStr

from app.bootstrap import open_service, settings_for
from app.bootstrap.door import bound, connections_within, greeting, port_of
from app.bootstrap.running import run_until_stopped, server_of
from app.devstack import DevStack, DevStackError, FolderInUseError
from app.runtime.errors import StoreUnavailable
from app.settings import Loaded, SettingsError, StartError
from app.storage.keys import make_dev_keys
from app.storage.migrate import migrate as migrate_database


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
            (stack.data / "database").write_text(f"{stack.postgres.dsn}\n")  # for `fsck` beside us
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
    most = connections_within(loaded.settings.max_connections)
    async with open_service(loaded, role) as service:
        if service.app is None:
            return 1
        server = server_of(service.app, most)
        server.greeting = hello
        await run_until_stopped(service, server, sockets)
        return 0 if server.started else 1
