"""Which requests to end are carried out first, and which are not: on a real Postgres."""

import asyncio

import pytest

from app.runtime.ports.sessions import Delivery, InboxKind
from app.storage.engine import Engine
from app.storage.workers import CLAIM_ENDING
from tests.making import KEYS, new_session
from tests.storage.test_races import Storage, sleeping
from tests.waiting import until


@pytest.fixture
async def storage(engine: Engine) -> Storage:
    storage = Storage(engine)
    await storage.workers.renew("w1", 60)
    return storage


async def ending(storage: Storage, tenant: str = "default") -> str:
    """Return a session that is asked to end; it is due since now."""
    new = new_session(tenant=tenant)
    await storage.sessions.create(new, None)
    async with storage.sessions.locked(tenant, new.id) as locked:
        assert locked is not None
        await locked.deliver(Delivery(InboxKind.CANCEL, b"sealed", None))
    return new.id


async def taken(storage: Storage, limit: int = 9) -> list[str]:
    return [c.session_id for c in await storage.workers.claim_ending("w1", limit, KEYS)]


@pytest.mark.parametrize(
    "changed", ["wake_at = now() + interval '1 hour'", "wake_at = null", "min_version = 999"]
)
async def test_what_is_not_due_or_of_a_newer_release_is_left(
    storage: Storage, engine: Engine, changed: str
) -> None:
    session_id = await ending(storage)
    await engine.run(f"update sessions set {changed}")
    assert await taken(storage) == []
    await engine.run("update sessions set wake_at = now(), min_version = 1")
    assert await taken(storage) == [session_id]
    assert await engine.value("select wake_at is null from sessions"), "it is due no more"


async def test_a_locked_session_is_left_and_not_waited_for(storage: Storage) -> None:
    first, second = [await ending(storage) for _ in range(2)]
    async with storage.sessions.locked("default", first):
        assert await taken(storage) == [second]


async def test_what_was_done_meanwhile_is_left(
    storage: Storage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker took the session after this one began to look, and has let it go already."""
    await ending(storage)
    slow = CLAIM_ENDING.replace("select * from asked", "select *, pg_sleep(0.3) from asked")
    assert slow != CLAIM_ENDING
    monkeypatch.setattr("app.storage.workers.CLAIM_ENDING", slow)
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(taken(storage))
        await until(lambda: sleeping(engine))
        await engine.run("update sessions set epoch = 1, wake_at = null")
    assert claiming.result() == []


async def test_tenants_take_turns(storage: Storage) -> None:
    first, _second = [await ending(storage, "many") for _ in range(2)]
    other = await ending(storage, "few")
    assert set(await taken(storage, 2)) == {first, other}


async def test_of_a_tenant_what_has_been_due_longest_is_first(
    storage: Storage, engine: Engine
) -> None:
    """So many, of two tenants by turns, that no order of reading or sorting happens to be right."""
    tenants = ("many", "few") * 30
    ids = [await ending(storage, tenant) for tenant in tenants]
    await engine.run("update sessions set wake_at = now() - interval '1 minute'")
    await engine.run(
        "update sessions set wake_at = wake_at - interval '1 second' where id = any($1)", ids[40:42]
    )
    assert set(await taken(storage, 2)) == {ids[40], ids[41]}
