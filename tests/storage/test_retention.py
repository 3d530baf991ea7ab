"""What leaves the database and what must not, on a real Postgres."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.runtime.ports.journal import Release
from app.runtime.side.retention import Keeping, Waste
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.retention import (
    FORGET,
    MOST_EVENTS,
    MOST_SESSIONS,
    PURGE,
    TIDY,
    PostgresRetention,
)
from app.storage.schedules import PostgresSchedules
from app.storage.sessions import PostgresSessions
from app.storage.workers import PostgresWorkers
from tests.conformance.test_schedules import schedule
from tests.making import KEYS, append, message, new_session, remember

DAY_S = 86_400.0
KEEPING = Keeping(sessions_s=30 * DAY_S, answers_s=DAY_S)


class Storage:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sessions = PostgresSessions(engine)
        self.retention = PostgresRetention(engine)

    async def ended(self, count: int, *, days: float, events: int = 1) -> list[str]:
        """Make sessions that ended so long ago."""
        ids = [f"ses_{time.monotonic_ns():020}_{n}" for n in range(count)]
        for one in ids:
            await self.sessions.create(new_session(session_id=one), None)
        workers, journal = PostgresWorkers(self.engine), PostgresJournal(self.engine)
        await workers.renew("w1", 60)
        for claim in await workers.claim("w1", count, count, KEYS):
            end = append(claim, events=events, status="completed", release=Release())
            await journal.append_batch([end])
        await self.age(ids, days)
        return ids

    async def age(self, ids: Sequence[str], days: float) -> None:
        await self.engine.run(
            "update sessions set updated_at = now() - make_interval(secs => $2::float8),"
            " ended_at = case when status in ('active', 'waiting') then null"
            " else now() - make_interval(secs => $2::float8) end where id = any($1)",
            ids,
            days * DAY_S,
        )

    async def left(self, table: str, column: str = "session_id") -> set[str]:
        rows = await self.engine.rows(f"select distinct {column} as id from {table}")
        return {row["id"] for row in rows}

    async def count(self, table: str) -> object:
        return await self.engine.value(f"select count(*) from {table}")


@pytest.fixture
def storage(engine: Engine) -> Storage:
    return Storage(engine)


@pytest.mark.req("STATE-9")
async def test_whole_ended_sessions_leave(storage: Storage) -> None:
    old, young = await storage.ended(3, days=31), await storage.ended(2, days=29)
    async with storage.sessions.locked("default", old[0]) as locked:
        assert locked is not None
        await locked.deliver(message())
    await storage.engine.run("update sessions set inbox_seen = inbox_head, wake_at = null")
    await storage.engine.run(
        "insert into snapshots select id, 1, 1, ''::bytea from sessions where head > 0"
    )
    assert await storage.retention.waste(KEEPING) == [Waste.SESSIONS]
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 3
    for table in ("events", "snapshots"):
        assert await storage.left(table) == set(young), table
    assert await storage.left("sessions", "id") == set(young)
    assert await storage.count("inbox") == 0
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 0
    assert await storage.retention.waste(KEEPING) == []


@pytest.mark.req("STATE-9")
@pytest.mark.case("C126")
@pytest.mark.parametrize(
    "change",
    [
        "status = 'waiting', pending_kind = 'verification', ended_at = null",
        "status = 'active', ended_at = null",
        "inbox_head = inbox_head + 1",
        "wake_at = now()",
        "timer_at = now() + interval '1 day'",
        "owner = 'w1'",
        "updated_at = now()",
    ],
)
async def test_what_somebody_may_still_want_stays(storage: Storage, change: str) -> None:
    ids = await storage.ended(1, days=400)
    await storage.engine.run(f"update sessions set {change}")
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 0
    assert await storage.left("events") == set(ids)


@pytest.mark.req("STATE-9", "API-16")
async def test_a_session_stays_while_a_schedule_speaks_to_it(storage: Storage) -> None:
    """A yearly message must find it; a schedule that is paused or over sends none."""
    kept, once, paused, alone = await storage.ended(4, days=400)
    schedules = PostgresSchedules(storage.engine)
    for n, session_id in enumerate((kept, once, paused)):
        await schedules.create(replace(schedule(f"sch_{n}"), session_id=session_id))
    await schedules.create(schedule("sch_of_none"))
    await storage.engine.run("update schedules set next_at = null where id = 'sch_1'")
    await storage.engine.run(
        "update schedules set next_at = null, paused = true where id = 'sch_2'"
    )
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 3
    assert await storage.left("sessions", "id") == await storage.left("events") == {kept}
    assert await storage.retention.waste(KEEPING) == []
    await storage.engine.run("delete from schedules where id = 'sch_0'")
    assert await storage.retention.waste(KEEPING) == [Waste.SESSIONS]
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 1
    assert alone not in await storage.left("sessions", "id")


async def test_sessions_are_kept_for_ever_unless_said_otherwise(storage: Storage) -> None:
    await storage.ended(1, days=4000)
    keeping = replace(KEEPING, sessions_s=None)
    assert await storage.retention.waste(keeping) == []
    assert await storage.retention.remove(Waste.SESSIONS, keeping) == 0


@pytest.mark.req("STATE-9")
async def test_batches_are_bounded_and_wait_for_nobody(storage: Storage) -> None:
    ids = await storage.ended(MOST_SESSIONS + 5, days=40)
    async with storage.sessions.locked("default", ids[0]):
        assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == MOST_SESSIONS
        assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 4
        assert await storage.left("sessions", "id") == {ids[0]}
    assert await storage.retention.remove(Waste.SESSIONS, KEEPING) == 1
    await storage.ended(3, days=40, events=MOST_EVENTS - 5)
    assert [await storage.retention.remove(Waste.SESSIONS, KEEPING) for _ in range(3)] == [2, 1, 0]
    assert await storage.count("events") == 0


@pytest.mark.req("STATE-9", "API-7")
async def test_a_message_racing_the_purge_is_kept_or_refused(storage: Storage) -> None:
    """Whoever has the row first: the message keeps its session, or finds none."""
    kept = 0
    for n, session_id in enumerate(await storage.ended(30, days=40)):

        async def tell(session_id: str = session_id, n: int = n) -> bool:
            await asyncio.sleep(0.0005 * (n % 10))
            async with storage.sessions.locked("default", session_id) as locked:
                return locked is not None and await locked.deliver(message()) is not None

        async with asyncio.TaskGroup() as group:
            told = group.create_task(tell())
            if n % 3:
                group.create_task(storage.retention.remove(Waste.SESSIONS, KEEPING))
        row = await storage.sessions.get("default", session_id)
        assert told.result() is (row is not None)
        assert row is None or row.inbox_head == 1
        kept += row is not None
    assert kept


@pytest.mark.req("STATE-9", "API-11")
async def test_answers_leave_after_their_time(storage: Storage) -> None:
    for n in range(3):
        await storage.sessions.begin_remembering(remember(f"k{n}", status=n * 201))
    await storage.engine.run(
        "update idempotency set created_at = now() - interval '25 hours' where key <> 'k2'"
    )
    assert await storage.retention.waste(KEEPING) == [Waste.ANSWERS]
    assert await storage.retention.remove(Waste.ANSWERS, KEEPING) == 2
    assert await storage.left("idempotency", "key") == {"k2"}


@pytest.mark.req("STATE-9", "API-16")
async def test_the_key_of_a_firing_stays_until_its_schedule_has_moved_on(storage: Storage) -> None:
    """Nobody ran for a day after a worker made a session and died before noting it."""
    schedules = PostgresSchedules(storage.engine)
    await schedules.create(schedule("sch_1"))
    await storage.engine.run("update schedules set next_at = now() - interval '26 hours'")
    for key in ("schedule:sch_1:2027", "schedule:sch_2:2027"):
        await storage.sessions.begin_remembering(remember(key))
    await storage.engine.run("update idempotency set created_at = now() - interval '25 hours'")
    assert await storage.retention.remove(Waste.ANSWERS, KEEPING) == 1
    assert await storage.left("idempotency", "key") == {"schedule:sch_1:2027"}
    await storage.engine.run("update schedules set next_at = now()")
    assert await storage.retention.remove(Waste.ANSWERS, KEEPING) == 1


@pytest.mark.req("STATE-9")
async def test_messages_leave_once_they_are_in_the_journal(storage: Storage) -> None:
    """Decisions stay: by their subjects a second one is told from the first."""
    new = new_session()
    await storage.sessions.create(new, None)
    async with storage.sessions.locked("default", new.id) as locked:
        assert locked is not None
        for subject in (None, "t1_c1_0", None, None):
            await locked.deliver(message(subject=subject))
    await storage.engine.run("update sessions set inbox_seen = 3")
    assert await storage.retention.waste(KEEPING) == []
    await storage.engine.run("update inbox set created_at = now() - interval '25 hours'")
    assert await storage.retention.waste(KEEPING) == [Waste.MESSAGES]
    assert await storage.retention.remove(Waste.MESSAGES, KEEPING) == 2
    assert [row.n for row in await storage.sessions.inbox(new.id, 0)] == [2, 4]
    assert await storage.retention.waste(KEEPING) == []
    async with storage.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.deliver(message(subject="t1_c1_0")) is None
        assert await locked.deliver(message()) == 5


_MANY = "from generate_series(1, 20000) n"
_EVENT = "1, 'x', null, 1, 1, now(), '', ''"
FILL = (
    f"insert into events select 'ses_' || n / 10, n % 10, {_EVENT} {_MANY}",
    f"insert into inbox select 'ses_' || n / 10, n % 10, 'message', null, '', now() {_MANY}",
    f"insert into idempotency select 't', 'k' || n, 'r', '', 201, '', null, now() {_MANY}",
    f"insert into snapshots select 'ses_' || n, 1, 1, '' {_MANY}",
    "analyze",
)


@pytest.mark.req("STATE-9")
@pytest.mark.parametrize("statement", [PURGE, FORGET, TIDY], ids=["purge", "forget", "tidy"])
async def test_the_statements_go_by_their_indexes(storage: Storage, statement: str) -> None:
    """With generic plans, as the service runs them; a walk over a table would grow with it."""
    for filling in FILL:
        await storage.engine.run(filling)
    async with storage.engine.transaction() as connection:
        await connection.execute("set local plan_cache_mode = force_generic_plan")
        await connection.execute(f"prepare one (float8) as {statement}")
        plan = await connection.fetch("explain execute one (1)")
    text = "\n".join(row[0] for row in plan)
    for table in ("events", "inbox", "idempotency", "snapshots"):
        assert f"Seq Scan on {table}" not in text, text
