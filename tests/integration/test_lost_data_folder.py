"""A data folder that went away, and a new one at its path, where the cluster lies elsewhere."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from app.devstack import DevStack, places
from tests.servers import server_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's cluster lies elsewhere")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of root's alone; what must be reachable goes to a folder of the test's own."""
    made = Path(tempfile.mkdtemp(prefix="surefoot-closed-"))
    with server_folder() as open_to_all:
        monkeypatch.setattr(places, "OWN_FOLDERS", (open_to_all / "own",))
        yield made
    shutil.rmtree(made)


async def fetch(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_new_folder_at_an_old_path_does_not_adopt_the_old_cluster(closed: Path) -> None:
    """The old folder took its keys along; the new one's would open nothing of the old cluster."""
    data, moved = closed / "data", closed / "moved"
    async with DevStack(data, durable=False) as stack:
        old = stack.postgres.cluster
        assert stack.postgres.unused == []
        await fetch(stack.postgres.dsn, "create table kept as select 7 as n")
    data.rename(moved)
    for unused in ([old], []):  # it is said once
        async with DevStack(data, durable=False) as stack:
            assert stack.postgres.unused == unused
            assert stack.postgres.cluster != old
            assert await fetch(stack.postgres.dsn, "select to_regclass('kept')") is None
    async with DevStack(moved, durable=False) as stack:
        assert stack.postgres.cluster == old
        assert await fetch(stack.postgres.dsn, "select n from kept") == 7
