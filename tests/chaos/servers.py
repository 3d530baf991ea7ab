"""Servers and a nursery of a run outside of pytest."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.devstack import (
    PostgresHandle,
    ValkeyHandle,
    embedded_postgres_server,
    embedded_valkey_server,
)
from app.storage.migrate import migrate
from tests.integration.process import Nursery
from tests.integration.stack import Stacks
from tests.servers import Databases, server_folder


@dataclass(frozen=True, slots=True)
class Ground:
    """The servers of a run, which may do anything to them, and what opens stacks over them."""

    stacks: Stacks
    postgres: PostgresHandle
    valkey: ValkeyHandle


@asynccontextmanager
async def servers() -> AsyncIterator[Ground]:
    """Start them; everything is gone at the end."""
    async with AsyncExitStack() as held:
        folder = held.enter_context(server_folder())
        postgres = await held.enter_async_context(embedded_postgres_server(folder, durable=False))
        valkey = await held.enter_async_context(embedded_valkey_server())
        nursery = await asyncio.to_thread(Nursery)
        held.callback(nursery.close)
        logs = held.enter_context(tempfile.TemporaryDirectory(prefix="surefoot-chaos-"))
        databases = Databases(postgres.dsn)
        await databases.template("migrated", migrate)
        stacks = Stacks(
            databases=databases, redis_url=valkey.url, nursery=nursery, folder=Path(logs)
        )
        yield Ground(stacks, postgres, valkey)
