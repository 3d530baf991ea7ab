"""A migrated database for each test that asks for one, copied from a template."""

from collections.abc import AsyncIterator

import pytest

from app.storage.engine import Engine
from app.storage.migrate import migrate
from tests.servers import Databases


@pytest.fixture
async def migrated_url(databases: Databases) -> AsyncIterator[str]:
    dsn = await databases.create(await databases.template("migrated", migrate))
    yield dsn
    await databases.drop(dsn)


@pytest.fixture
async def engine(migrated_url: str) -> AsyncIterator[Engine]:
    async with Engine(migrated_url) as engine:
        yield engine
