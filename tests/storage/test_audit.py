"""Planted violations are seen without a key, sound sessions are not, and looking stays cheap."""

import re
from collections.abc import Mapping

import asyncpg
import pytest
from typing_extensions import override

from app.runtime.explaining.auditor import Auditor
from app.runtime.explaining.findings import Finding, Invariant
from app.runtime.ports.journal import Release
from app.storage.audit import ABANDONED, CHECK, SUSPECTS, PostgresAudit
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.sessions import PostgresSessions
from app.storage.workers import PostgresWorkers
from app.telemetry.metrics import Metrics
from tests.clocks import RealClock
from tests.fakes.observer import RecordingObserver
from tests.making import KEYS, append, message, new_session

MANY = 100_000
EVERY = 1_000

PLANTED: Mapping[str, tuple[str, Invariant]] = {
    "nobody runs it": ("update sessions set owner = null where id = $1", Invariant.OWNED),
    "it waits for nobody": (
        "update sessions set owner = null, status = 'waiting' where id = $1",
        Invariant.OWNED,
    ),
    "a message nobody will take": (
        """
        with said as (insert into inbox values ($1::text, 1, 'message', null, 'x', now()))
        update sessions set owner = null, status = 'completed', inbox_head = 1 where id = $1
        """,
        Invariant.OWNED,
    ),
    "its owner was never missed": (
        "update sessions set owner = 'wrk_gone' where id = $1",
        Invariant.SWEPT,
    ),
    "a gap": ("delete from events where session_id = $1 and seq = 2", Invariant.DENSE),
    "no beginning": ("delete from events where session_id = $1 and seq = 1", Invariant.DENSE),
    "cut": ("delete from events where session_id = $1 and seq = 3", Invariant.HEAD),
    "beyond": ("update sessions set head = head - 1 where id = $1", Invariant.HEAD),
    "another hash": ("update sessions set head_hash = 'x' where id = $1", Invariant.HEAD),
    "two ends": (
        "update events set type = 'turn.ended' where session_id = $1 and seq > 1",
        Invariant.TURN_ENDS,
    ),
    "taken before it was said": (
        "update sessions set inbox_seen = 5 where id = $1",
        Invariant.INBOX,
    ),
    "a message is gone": ("update sessions set inbox_head = 2 where id = $1", Invariant.INBOX),
}


@pytest.fixture
async def running(engine: Engine) -> str:
    """A session that a living worker runs."""
    sessions, workers = PostgresSessions(engine), PostgresWorkers(engine)
    await sessions.create(new_session(), None)
    await workers.renew("w1", 60)
    await engine.run("update workers set started_at = now() - interval '1 hour'")
    (claim,) = await workers.claim("w1", 1, 1, KEYS)
    (done,) = await PostgresJournal(engine).append_batch([append(claim)])
    assert done.fate.value == "written"
    return claim.session_id


async def look(engine: Engine, session_id: str) -> set[Invariant]:
    found = await PostgresAudit(engine).check([session_id], EVERY)
    return {one.invariant for one in found}


async def forge(engine: Engine, statement: str, session_id: str) -> None:
    async with engine.transaction() as connection:
        await connection.execute("set local session_replication_role = replica")
        await connection.execute(statement, session_id)


@pytest.mark.req("STATE-8")
@pytest.mark.parametrize("case", PLANTED)
async def test_a_planted_violation_is_seen(engine: Engine, running: str, case: str) -> None:
    statement, invariant = PLANTED[case]
    assert await look(engine, running) == set()
    await forge(engine, statement, running)
    assert await look(engine, running) == {invariant}


async def test_sessions_on_their_way_are_sound(engine: Engine) -> None:
    """Created, claimed, told something, waiting for a time, at rest, given up, just lost."""
    sessions, workers = PostgresSessions(engine), PostgresWorkers(engine)
    journal, audit = PostgresJournal(engine), PostgresAudit(engine)
    for _ in range(7):
        await sessions.create(new_session(), None)
    await workers.renew("w1", 60)
    await workers.renew("w2", 60)
    claims = await workers.claim("w1", 5, 5, KEYS)
    (lost,) = await workers.claim("w2", 1, 1, KEYS)
    ends = [
        append(claims[0], status="completed", release=Release()),
        append(claims[1], status="active", release=Release(4_000_000_000_000_000)),
        append(claims[2], status="completed", release=Release(), events=0),
    ]
    await journal.append_batch(ends)
    async with sessions.locked("default", claims[0].session_id) as locked:
        assert locked is not None
        await locked.deliver(message())
    await workers.give_up("w1", claims[3].session_id, claims[3].epoch, blameless=True)
    await engine.run("update workers set lease_until = now() where id = 'w2'")
    ids = await audit.after("", 100)
    assert (len(ids), lost.session_id in ids) == (7, True)
    assert await audit.check(ids, EVERY) == []
    assert await audit.suspects() == []


async def test_a_lost_owner_is_no_fault_while_nobody_is_there_to_sweep(
    engine: Engine, running: str
) -> None:
    await engine.run("update workers set lease_until = now() - interval '1 hour'")
    assert await look(engine, running) == set()
    await engine.run(
        "insert into workers values ('w9', now() + interval '1 hour', now(), 1)"
    )  # it has just begun
    assert await look(engine, running) == set()
    await engine.run("update workers set started_at = now() - interval '1 hour'")
    assert await look(engine, running) == {Invariant.SWEPT}
    await PostgresWorkers(engine).sweep()
    assert await look(engine, running) == set()


async def test_of_a_long_journal_only_the_last_events_are_looked_at(
    engine: Engine, running: str
) -> None:
    audit = PostgresAudit(engine)
    await forge(engine, "delete from events where session_id = $1 and seq = 1", running)
    assert await audit.check([running], 2) == []
    assert len(await audit.check([running], 3)) == 1


class Hasty(PostgresAudit):
    """Sees once what is not there."""

    def __init__(self, engine: Engine, seen: Finding) -> None:
        super().__init__(engine)
        self._seen = [seen]

    @override
    async def suspects(self) -> list[Finding]:
        return [self._seen.pop()] if self._seen else []


class Told:
    """What the auditor said last, as a gauge shows it."""

    def __init__(self) -> None:
        self.metrics = Metrics(lambda _: "")
        self.observer = RecordingObserver()

    def gauge(self, invariant: Invariant) -> float:
        labels = {"invariant": invariant.value}
        found = self.metrics.registry.get_sample_value("surefoot_invariant_violations", labels)
        assert found is not None
        return found

    def lines(self, name: str) -> int:
        return sum(event == name for event, _ in self.observer.lines)


def standing(engine: Engine, told: Told) -> Auditor:
    return Auditor(
        clock=RealClock(),
        audit=PostgresAudit(engine),
        observer=told.observer,
        every_s=60,
        tell=told.metrics.violations,
        recheck_s=0,
    )


@pytest.mark.parametrize("case", PLANTED)
async def test_the_standing_auditor_shows_it_until_it_is_mended(
    engine: Engine, running: str, case: str
) -> None:
    statement, invariant = PLANTED[case]
    told = Told()
    auditor = standing(engine, told)
    await auditor.round()
    assert {told.gauge(one) for one in Invariant if one in _seen()} == {0}
    await engine.run("create table kept as select * from sessions")
    await engine.run("create table kept_events as select * from events")
    await forge(engine, statement, running)
    for _ in range(2):
        await auditor.round()
        assert told.gauge(invariant) == 1
    assert told.lines("invariant.broken") == 1  # told once
    await _mended(engine)
    await auditor.round()
    assert told.gauge(invariant) == 0
    assert told.lines("invariant.holds") == 1


def _seen() -> frozenset[Invariant]:
    return frozenset({i for _, i in PLANTED.values()})


async def _mended(engine: Engine) -> None:
    async with engine.transaction() as connection:
        await connection.execute("set local session_replication_role = replica")
        for table, copy in (("sessions", "kept"), ("events", "kept_events")):
            await connection.execute(f"delete from {table}")
            await connection.execute(f"insert into {table} select * from {copy}")


async def test_what_is_gone_at_the_second_look_is_not_told(engine: Engine, running: str) -> None:
    told = Told()
    auditor = standing(engine, told)
    auditor.audit = Hasty(engine, Finding(running, Invariant.OWNED, "a moment ago"))
    await auditor.round()
    assert (told.gauge(Invariant.OWNED), told.lines("invariant.broken")) == (0, 0)


async def test_looking_stays_cheap_among_a_hundred_thousand_sessions(engine: Engine) -> None:
    await engine.run(
        "insert into sessions (id, tenant, agent, agent_version, model, mode, prompt, status,"
        " turn, step, usage, limits, tools, trace_id, created_at, updated_at, epoch, head,"
        " head_hash, inbox_head, inbox_seen, claims, min_version, key_id, data_key)"
        " select 'ses_' || lpad(n::text, 8, '0'), 'default', 'default', 1, 'demo', 'react',"
        " 'agent@1', 'completed', 1, 1, '{}', '{}', '{}', '', now(), now(), 1, 0, 'x', 0, 0, 0, 1,"
        f" 'dev', 'x' from generate_series(1, {MANY}) n"
    )
    await engine.run("update sessions set owner = 'w1' where id < 'ses_00000100'")
    async with engine.pool.acquire() as connection:
        await connection.execute("vacuum analyze sessions")
        for statement, args, most in (
            (SUSPECTS, (10.0,), 50),
            (ABANDONED, (10.0,), 500),
            (CHECK, (10.0, [f"ses_{n:08}" for n in range(300)], 500), 5_000),
            ("select id from sessions order by id desc limit 100", (), 50),
        ):
            assert await _pages(connection, statement, *args) <= most
    audit = PostgresAudit(engine)
    assert await audit.suspects() == []
    found = await audit.check(await audit.newest(100), 500)
    assert {one.invariant for one in found} == {Invariant.HEAD}  # made without events


async def _pages(
    connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", statement: str, *args: object
) -> int:
    """Return how many pages of the database a statement looks at; never at a whole table."""
    rows = await connection.fetch(f"explain (analyze, buffers) {statement}", *args)
    plan = [str(row[0]) for row in rows]
    assert not any("Seq Scan on sessions" in line for line in plan), plan
    touched = next(line for line in plan if "Buffers" in line)
    return sum(int(n) for n in re.findall(r"(?:hit|read)=(\d+)", touched))
