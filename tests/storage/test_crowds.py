"""Many who want one row: the others have their connections, and the lease is renewed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.runtime.errors import StoreUnavailable
from app.storage.engine import Engine
from app.storage.turns import Turns
from tests.making import new_session
from tests.storage.test_in_turn import waiting
from tests.storage.test_races import Storage
from tests.waiting import until

CROWD = 40
_LOCK = "select from sessions where id = $1 for update"


async def touch(storage: Storage, session_id: str) -> bool:
    async with storage.sessions.locked("default", session_id) as locked:
        return locked is not None


@asynccontextmanager
async def crowd(migrated_url: str, size: int) -> AsyncIterator[Storage]:
    """A pool of this size, with a crowd at one row that stays locked until the block ends."""
    async with (
        Engine(migrated_url, lease_s=60) as outside,
        Engine(migrated_url, lease_s=60, size=size) as engine,
        asyncio.TaskGroup() as group,
    ):
        storage = Storage(engine)
        (claim,) = await storage.claims()
        async with outside.transaction() as connection:
            await connection.execute(_LOCK, claim.session_id)
            tasks = [group.create_task(touch(storage, claim.session_id)) for _ in range(CROWD)]
            await until(lambda: _some_wait(outside))
            yield storage
            assert not any(task.done() for task in tasks)
    assert all(task.result() for task in tasks)


async def _some_wait(engine: Engine) -> bool:
    return await waiting(engine, "surefoot") > 0


@pytest.mark.parametrize(("size", "most"), [(2, 1), (8, 2)])
async def test_a_crowd_at_one_row_leaves_connections_to_the_others(
    migrated_url: str, size: int, most: int
) -> None:
    async with asyncio.timeout(30), crowd(migrated_url, size) as storage:
        for _ in range(20):
            await storage.sessions.create(other := new_session(), None)
            assert await touch(storage, other.id)
        async with Engine(migrated_url) as engine:
            assert await waiting(engine, "surefoot") == most


async def test_the_lease_is_renewed_though_every_connection_waits(migrated_url: str) -> None:
    async with asyncio.timeout(30), crowd(migrated_url, 1) as storage:
        await storage.workers.renew("w2", 60)


async def test_who_waits_too_long_for_a_place_is_told_and_leaves_it_to_the_next() -> None:
    turns = Turns(most=1, within_s=0.01)
    async with turns.at("a"):
        async with turns.at("b"):
            pass
        with pytest.raises(StoreUnavailable):
            async with turns.at("a"):
                pass
    async with turns.at("a"):
        pass
    assert turns == Turns(most=1, within_s=0.01), "nothing is kept of rows nobody wants"
