"""What every test of real processes starts from."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.devstack import PostgresHandle, embedded_postgres_server
from app.storage.migrate import migrate
from tests.integration.process import Nursery
from tests.integration.stack import Stacks
from tests.servers import REDIS_URL, Databases, run_aside, server_folder


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="session")
def stacks(
    request: pytest.FixtureRequest,
    databases: Databases,
    nursery: Nursery,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stacks:
    with ThreadPoolExecutor(1) as thread:  # here, since several stacks may be opened at once
        thread.submit(asyncio.run, databases.template("migrated", migrate)).result()
    redis_url = os.environ.get(REDIS_URL) or request.getfixturevalue("valkey_server").url
    return Stacks(
        databases=databases,
        redis_url=redis_url,
        nursery=nursery,
        folder=tmp_path_factory.mktemp("stacks"),
    )


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresHandle]:
    """Return a Postgres that a test may stop; `own` lets it run again."""
    with server_folder() as folder, run_aside(embedded_postgres_server(folder, durable=False)) as h:
        yield h


@pytest.fixture(scope="module")
def databases_of_own(postgres: PostgresHandle) -> Databases:
    return Databases(postgres.dsn)


@pytest.fixture
async def own(
    stacks: Stacks, postgres: PostgresHandle, databases_of_own: Databases, tmp_path: Path
) -> Stacks:
    """Return stacks over a Postgres that a test may stop."""
    await postgres.start()
    return replace(stacks, databases=databases_of_own, folder=tmp_path)
