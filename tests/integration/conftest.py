"""What every test of real processes starts from."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.storage.migrate import migrate
from tests.integration.process import Nursery
from tests.integration.stack import Stacks
from tests.servers import REDIS_URL, Databases


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
