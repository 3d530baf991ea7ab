"""Claims that meet locks and other claims, on a real Postgres."""

import asyncio

import pytest

from app.runtime.ports.journal import Release
from app.storage.engine import Engine
from app.storage.sql import JOURNAL_V
from app.storage.workers import CLAIM
from tests.making import KEYS, append, new_session
from tests.storage.test_races import Storage, sleeping, slowed
from tests.waiting import until


@pytest.fixture
def storage(engine: Engine) -> Storage:
    return Storage(engine)


async def test_a_claim_takes_nothing_that_was_done_meanwhile(
    storage: Storage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker took the session after the claim began, and has let it go already."""
    await storage.sessions.create(new_session(), None)
    await storage.workers.renew("w1", 60)
    monkeypatch.setattr("app.storage.workers.CLAIM", slowed(CLAIM, "queued q"))
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(storage.workers.claim("w1", 1, 1, KEYS))
        await until(lambda: sleeping(engine))
        await engine.run("update sessions set epoch = 1, wake_at = null")
    assert claiming.result() == []


async def test_a_claim_leaves_a_locked_session_and_does_not_wait_for_it(storage: Storage) -> None:
    for _ in range(2):
        await storage.sessions.create(new_session(), None)
    await storage.workers.renew("w1", 60)
    first, second = await _due(storage)
    async with storage.sessions.locked("default", first):
        taken = await storage.workers.claim("w1", 9, 9, KEYS)
    assert [c.session_id for c in taken] == [second]


async def test_a_sweep_leaves_a_locked_session_and_does_not_wait_for_it(storage: Storage) -> None:
    claims = await storage.claims(2)
    await storage.workers.renew("w1", 0)
    async with storage.sessions.locked("default", claims[0].session_id):
        assert await storage.workers.sweep() == 1
    assert await storage.workers.sweep() == 1


async def test_timers_of_owned_sessions_are_not_in_the_way(
    storage: Storage, engine: Engine
) -> None:
    """They came due after their sessions had been claimed for another reason."""
    claims = await storage.claims(7)
    (last,) = claims[6:]
    await storage.journal.append_batch([append(last, status="waiting", release=Release())])
    await engine.run("update sessions set timer_at = now() - interval '1 minute'")
    await engine.run("update sessions set timer_at = now() where id = $1", last.session_id)
    await storage.workers.renew("w2", 60)
    taken = await storage.workers.claim("w2", 1, 1, KEYS)
    assert [c.session_id for c in taken] == [last.session_id]


async def test_what_was_due_before_its_worker_left_is_due_since_then(
    storage: Storage, engine: Engine
) -> None:
    await storage.claims()
    await engine.run("update sessions set wake_at = now() - interval '1 minute'")
    await storage.workers.remove("w1")
    assert await engine.value("select wake_at < now() - interval '30 seconds' from sessions")


async def _due(storage: Storage) -> list[str]:
    rows = await storage.sessions.page(
        "default", after=None, limit=9, status=None, agent=None, tool=None
    )
    return [row.id for row in rows]


@pytest.mark.parametrize(("before", "after"), [(1, JOURNAL_V), (999, 999)])
async def test_a_session_is_for_the_newest_release_that_has_written_in_it(
    storage: Storage, engine: Engine, before: int, after: int
) -> None:
    (claim,) = await storage.claims()
    await engine.run("update sessions set min_version = $1", before)
    await storage.journal.append_batch([append(claim)])
    assert await engine.value("select min_version from sessions") == after
