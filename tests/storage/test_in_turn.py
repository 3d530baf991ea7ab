"""An append that queues for its row: it gets its turn in a crowd, and looks at the row then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import asyncpg
import pytest

from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate, Release
from app.runtime.ports.workers import Claim
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from tests.clocks import RealClock
from tests.making import append, message
from tests.storage.test_races import Storage
from tests.waiting import until

CROWD = 3
_LOCK = "select from sessions where id = $1 for update"


async def waiting(engine: Engine, who: str) -> int:
    """Return how many connections of this name wait for a lock."""
    return int(
        str(
            await engine.value(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                " and datname = current_database() and application_name = $1",
                who,
            )
        )
    )


class Crowd:
    """Connections that lock one row by turns, so that it always has a holder and one who waits."""

    def __init__(self, dsn: str, engine: Engine, session_id: str) -> None:
        self._dsn = dsn
        self._engine = engine
        self._id = session_id
        self._over = False
        self.turns = 0

    async def member(self) -> None:
        """Hold the row until another one waits for it; queue again once that one has it."""
        connection = await asyncpg.connect(self._dsn, server_settings={"application_name": "crowd"})
        try:
            while not self._over:
                async with connection.transaction():
                    await connection.execute(_LOCK, self._id)
                    self.turns += 1
                    mine = self.turns
                    await until(self._is_followed)
                await until(partial(self._went_on_from, mine))
        finally:
            await connection.close()

    def _went_on_from(self, turn: int) -> bool:
        return self._over or self.turns > turn

    async def _is_followed(self) -> bool:
        return self._over or await waiting(self._engine, "crowd") > 0

    def go_home(self) -> None:
        self._over = True


@asynccontextmanager
async def crowd(dsn: str, engine: Engine, session_id: str) -> AsyncIterator[Crowd]:
    it = Crowd(dsn, engine, session_id)
    async with asyncio.TaskGroup() as group:
        for _ in range(CROWD):
            group.create_task(it.member())
        await until(lambda: it.turns > CROWD)
        try:
            yield it
        finally:
            it.go_home()


async def test_appends_get_through_within_a_few_turns_of_a_crowd(
    engine: Engine, migrated_url: str
) -> None:
    """About four turns each; without queuing about eighty, until one hits a gap."""
    (claim,) = await Storage(engine).claims()
    writer = JournalWriter(store=PostgresJournal(engine), clock=RealClock())
    heads = range(2, 8)
    async with (
        asyncio.TaskGroup() as group,
        crowd(migrated_url, engine, claim.session_id) as people,
    ):
        running = group.create_task(writer.run())
        before = people.turns
        for head in heads:
            assert (await writer.append(append(claim, head=head))).fate is Fate.WRITTEN
        assert people.turns - before <= 20 * len(heads)
        running.cancel()


@pytest.fixture
def storage(engine: Engine) -> Storage:
    return Storage(engine)


@asynccontextmanager
async def queued(
    engine: Engine, storage: Storage, claim: Claim, entry: Append
) -> "AsyncIterator[tuple[asyncpg.pool.PoolConnectionProxy[asyncpg.Record], list[Appended]]]":
    """An append that queues for a row which the caller has locked, until the block ends."""
    fates: list[Appended] = []
    async with asyncio.TaskGroup() as group, engine.transaction() as connection:
        await connection.execute(_LOCK, claim.session_id)
        group.create_task(_append(storage, entry, fates))
        await until(lambda: _waits(engine))
        yield connection, fates


async def _append(storage: Storage, entry: Append, fates: list[Appended]) -> None:
    fates.append(await storage.journal.append_in_turn(entry))


async def _waits(engine: Engine) -> bool:
    return await waiting(engine, "surefoot") > 0


@pytest.mark.req("STATE-4")
@pytest.mark.parametrize("change", ["epoch = epoch + 1", "head = head + 1", "owner = null"])
async def test_it_is_fenced_by_what_came_before_its_turn(
    engine: Engine, storage: Storage, change: str
) -> None:
    (claim,) = await storage.claims()
    async with queued(engine, storage, claim, append(claim)) as (connection, fates):
        await connection.execute(
            f"update sessions set {change} where id = $1",
            claim.session_id,
        )
    assert fates == [Appended(Fate.FENCED)]
    assert len(await storage.journal.read(claim.session_id, 0, 9)) == 2


@pytest.mark.req("API-7", "STATE-1")
async def test_it_does_not_let_go_of_what_got_a_message_before_its_turn(
    storage: Storage, engine: Engine
) -> None:
    (claim,) = await storage.claims()
    end = append(claim, status="completed", release=Release())
    fates: list[Appended] = []
    async with (
        asyncio.TaskGroup() as group,
        storage.sessions.locked("default", claim.session_id) as locked,
    ):
        assert locked is not None
        group.create_task(_append(storage, end, fates))
        await until(lambda: _waits(engine))
        await locked.deliver(message())
    assert fates == [Appended(Fate.WRITTEN, 1, released=False)]
    row = await storage.sessions.get("default", claim.session_id)
    assert row is not None
    assert (row.owner, row.waking, row.head) == ("w1", True, 3)
    lapse = replace(append(claim, head=3), unless_behind=True)
    assert await storage.journal.append_in_turn(lapse) == Appended(Fate.BEHIND, 1)


async def test_one_whose_turn_does_not_come_before_the_lease_ends_is_skipped(
    migrated_url: str,
) -> None:
    async with Engine(migrated_url, lease_s=0.8) as engine:
        storage = Storage(engine)
        (claim,) = await storage.claims()
        async with Engine(migrated_url) as other, other.transaction() as connection:
            await connection.execute(_LOCK, claim.session_id)
            assert await storage.journal.append_in_turn(append(claim)) == Appended(Fate.SKIPPED)
        assert (await storage.journal.append_in_turn(append(claim))).fate is Fate.WRITTEN
        (event,) = await storage.journal.read(claim.session_id, 2, 9)
        assert event.seq == 3
