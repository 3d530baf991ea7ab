"""What only a real Postgres can show: statements that meet at one row, and lost connections."""

import asyncio
from collections import Counter
from dataclasses import replace

import asyncpg
import pytest

from app.runtime.errors import StoreRefused, StoreUnavailable
from app.runtime.ports.journal import Append, Appended, Fate, Release
from app.runtime.ports.workers import Claim
from app.storage.engine import Engine
from app.storage.journal import APPEND, PostgresJournal
from app.storage.listen import Listener, notify
from app.storage.sessions import PostgresSessions
from app.storage.workers import CLAIM, PostgresWorkers
from tests.clocks import RealClock
from tests.making import KEYS, append, event, message, new_session, remember
from tests.servers import Databases
from tests.waiting import until


class Storage:
    def __init__(self, engine: Engine) -> None:
        self.journal = PostgresJournal(engine)
        self.sessions = PostgresSessions(engine)
        self.workers = PostgresWorkers(engine)

    async def claims(self, count: int = 1) -> list[Claim]:
        for _ in range(count):
            await self.sessions.create(new_session(), None)
        await self.workers.renew("w1", 60)
        return await self.workers.claim("w1", count, count, KEYS)

    async def deliver(self, session_id: str) -> None:
        async with self.sessions.locked("default", session_id) as locked:
            assert locked is not None
            await locked.deliver(message())


@pytest.fixture
def storage(engine: Engine) -> Storage:
    return Storage(engine)


@pytest.mark.req("API-7", "STATE-1")
async def test_a_message_racing_the_release_is_never_lost(storage: Storage) -> None:
    """The real statements, many times; both outcomes must occur among the tries."""
    outcomes: Counter[bool] = Counter()
    for claim in await storage.claims(60):
        end = append(claim, status="completed", release=Release())

        async def release(end: Append = end) -> bool:
            while True:
                (done,) = await storage.journal.append_batch([end])
                if done.fate is not Fate.SKIPPED:
                    return done.released

        tries = sum(outcomes.values())
        async with asyncio.TaskGroup() as group:
            if tries % 2:  # either may begin, so that both may win on a machine of any speed
                released = group.create_task(release())
                await asyncio.sleep(0.0003 * (tries % 12))
                group.create_task(storage.deliver(claim.session_id))
            else:
                group.create_task(storage.deliver(claim.session_id))
                await asyncio.sleep(0.0003 * (tries % 12))
                released = group.create_task(release())
        row = await storage.sessions.get("default", claim.session_id)
        assert row is not None
        assert row.inbox_head == 1
        assert row.waking, "the message will be seen"
        assert (row.owner is None) == released.result()
        outcomes[released.result()] += 1
    assert set(outcomes) == {True, False}


def slowed(statement: str, source: str) -> str:
    """The statement with a pause between its look at the rows and its lock on them."""
    assert f"from {source} " in statement
    name, alias = source.split()
    paused = f"from (select {alias}.*, pg_sleep(0.3) from {name} {alias}) {alias} "
    return statement.replace(f"from {source} ", paused)


async def test_a_release_looks_at_the_inbox_as_it_is_under_the_lock(
    storage: Storage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that commits after the statement began is seen, though its snapshot is older."""
    (claim,) = await storage.claims()
    end = append(claim, status="completed", release=Release())
    monkeypatch.setattr("app.storage.journal.APPEND", slowed(APPEND, "entry e"))
    async with asyncio.TaskGroup() as group:
        appending = group.create_task(storage.journal.append_batch([end]))
        await until(lambda: sleeping(engine))
        await storage.deliver(claim.session_id)
    assert appending.result() == [Appended(Fate.WRITTEN, 1, released=False)]
    row = await storage.sessions.get("default", claim.session_id)
    assert row is not None
    assert (row.owner, row.waking, row.head) == ("w1", True, 3)


async def test_a_claim_looks_at_the_owner_as_it_is_under_the_lock(
    storage: Storage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker takes the session after the claim began, for a reason of its own.

    Its claim began a moment before the timer fired, so it leaves the timer where it is.
    """
    await storage.sessions.create(new_session(), None)
    await engine.run("update sessions set timer_at = now()")
    await storage.workers.renew("w1", 60)
    await storage.workers.renew("w2", 60)
    monkeypatch.setattr("app.storage.workers.CLAIM", slowed(CLAIM, "queued q"))
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(storage.workers.claim("w2", 1, 1, KEYS))
        await until(lambda: sleeping(engine))
        await engine.run("update sessions set owner = 'w1', epoch = 1, wake_at = null")
    assert claiming.result() == []


async def sleeping(engine: Engine) -> bool:
    return bool(
        await engine.value(
            "select exists (select from pg_stat_activity where wait_event = 'PgSleep'"
            " and datname = current_database())"
        )
    )


@pytest.mark.case("C135")
async def test_racing_writers_of_one_session_leave_one_dense_journal(storage: Storage) -> None:
    (claim,) = await storage.claims()
    for head in range(2, 22):
        async with asyncio.TaskGroup() as group:
            tries = [
                group.create_task(storage.journal.append_batch([append(claim, head=head)]))
                for _ in range(5)
            ]
        fates = [t.result()[0].fate for t in tries]
        if Fate.WRITTEN not in fates:  # each skipped the others' lock
            (again,) = await storage.journal.append_batch([append(claim, head=head)])
            fates = [again.fate]
        assert fates.count(Fate.WRITTEN) == 1
    read = await storage.journal.read(claim.session_id, 0, 100)
    assert [e.seq for e in read] == list(range(1, 23))


async def test_a_claim_racing_a_delivery_sees_it_or_leaves_it_due(storage: Storage) -> None:
    for claim in await storage.claims(30):
        await storage.journal.append_batch([append(claim, release=Release())])
        async with asyncio.TaskGroup() as group:
            group.create_task(storage.deliver(claim.session_id))
            claiming = group.create_task(storage.workers.claim("w1", 1, 1, KEYS))
        taken = claiming.result() or await storage.workers.claim("w1", 1, 1, KEYS)
        assert [(c.session_id, c.inbox_head) for c in taken] == [(claim.session_id, 1)]


async def test_a_batch_that_postgres_refuses_writes_nothing(storage: Storage) -> None:
    good, bad = await storage.claims(2)
    broken = replace(append(bad), events=(event(3), event(3)))
    with pytest.raises(StoreRefused):
        await storage.journal.append_batch([append(good), broken])
    assert len(await storage.journal.read(good.session_id, 0, 9)) == 2
    assert (await storage.journal.append_batch([append(good)]))[0].fate is Fate.WRITTEN


async def test_a_session_of_a_newer_release_is_left_to_newer_workers(
    storage: Storage, engine: Engine
) -> None:
    await storage.sessions.create(new_session(), None)
    await engine.run("update sessions set min_version = 999")
    await storage.workers.renew("w1", 60)
    assert await storage.workers.claim("w1", 1, 1, KEYS) == []
    await engine.run("update sessions set wake_at = null, timer_at = now()")
    assert await storage.workers.claim("w1", 1, 1, KEYS) == []


@pytest.mark.req("API-11")
async def test_a_mark_of_a_dead_process_is_taken_over_by_nobody(
    storage: Storage, engine: Engine
) -> None:
    """Its effect may have happened: carrying it out again could be the second time."""
    mark = remember(status=0)
    assert await storage.sessions.begin_remembering(mark) is None
    await engine.run("update idempotency set created_at = now() - interval '1 day'")
    found = await storage.sessions.begin_remembering(mark)
    assert found is not None
    assert found.status == 0


async def test_a_claim_with_many_due_sessions_of_one_tenant_serves_the_others(
    storage: Storage,
) -> None:
    for _ in range(50):
        await storage.sessions.create(new_session("big"), None)
    await storage.sessions.create(new_session("small"), None)
    await storage.workers.renew("w1", 60)
    taken = await storage.workers.claim("w1", 4, 4, KEYS)
    assert "small" in {c.tenant for c in taken}


@pytest.mark.case("C132")
async def test_behind_a_transaction_pooler_nothing_is_kept_on_a_connection(
    migrated_url: str,
) -> None:
    async with Engine(migrated_url, pooled=True, size=2) as engine:
        storage = Storage(engine)
        (claim,) = await storage.claims()
        assert (await storage.journal.append_batch([append(claim)]))[0].fate is Fate.WRITTEN
        prepared = await engine.value(
            "select count(*) from pg_prepared_statements where name <> ''"
        )
        assert prepared == 0
        assert await engine.value("show statement_timeout") == "0"


async def test_every_wait_inside_postgres_ends_before_the_lease(migrated_url: str) -> None:
    async with Engine(migrated_url, lease_s=4.0) as engine:
        for name in ("statement", "lock", "transaction", "idle_in_transaction_session"):
            shown = str(await engine.value(f"show {name}_timeout"))
            value = int(shown.removesuffix("ms").removesuffix("s"))
            seconds = value / 1000 if shown.endswith("ms") else value
            assert 0 < seconds < 4.0, name
        # Still so when the connection was used and given back.
        assert await engine.value("show transaction_timeout") != "0"


@pytest.mark.case("C122")
async def test_nothing_holds_a_connection_at_rest(storage: Storage, engine: Engine) -> None:
    (claim,) = await storage.claims()
    await storage.deliver(claim.session_id)
    assert engine.pool.get_size() == engine.pool.get_idle_size()
    states = await engine.rows(
        "select state from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    assert {row["state"] for row in states} <= {"idle"}


async def test_a_cancelled_block_gives_its_lock_back(storage: Storage) -> None:
    (claim,) = await storage.claims()
    inside = asyncio.Event()

    async def hold() -> None:
        async with storage.sessions.locked("default", claim.session_id) as locked:
            assert locked is not None
            await locked.deliver(message())
            inside.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        holding = group.create_task(hold())
        await inside.wait()
        holding.cancel()
    assert (await storage.journal.append_batch([append(claim)]))[0].fate is Fate.WRITTEN
    assert await storage.sessions.inbox(claim.session_id, 0) == []


@pytest.mark.case("C079")
async def test_an_outage_is_a_typed_error_and_passes(databases: Databases, engine: Engine) -> None:
    storage = Storage(engine)
    await storage.claims()
    await _cut(databases, engine)
    seen: list[str] = []

    async def works() -> bool:
        try:
            await storage.workers.renew("w1", 60)
        except StoreUnavailable as error:
            seen.append(str(error))
            return False
        return True

    await until(works)
    async with Engine("postgresql://nobody@127.0.0.1:9/none") as dead:
        with pytest.raises(StoreUnavailable):
            await dead.value("select 1")


async def _cut(databases: Databases, engine: Engine) -> None:
    """End every connection of the pool from outside, as a restart would."""
    dsn = await databases.create()
    name = await engine.value("select current_database()")
    admin = await asyncpg.connect(dsn)
    try:
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name
        )
    finally:
        await admin.close()
        await databases.drop(dsn)


async def test_nudges_over_postgres_survive_a_cut(
    databases: Databases, engine: Engine, migrated_url: str
) -> None:
    heard: list[str] = []
    listener = Listener(migrated_url, heard.append, clock=RealClock())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(listener.run())
        await listener.listening.wait()
        await notify(engine, "ses_1")
        await until(lambda: heard == ["ses_1"])
        await _cut(databases, engine)

        async def heard_again() -> bool:
            try:
                await notify(engine, "ses_2")
            except StoreUnavailable:
                return False
            return "ses_2" in heard

        await until(heard_again)
        running.cancel()
