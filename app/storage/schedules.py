"""Schedules and what came of them.

A worker moves a schedule on only where it finds the version and the firing that it read: a change
by a user, and another worker that was quicker, both leave it nothing to do.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from app.runtime.ports.sessions import Remember
from app.runtime.side.schedule_records import MOST_RUNS, Outcome, Run, ScheduleRow, Seen
from app.runtime.side.timing import Missed, Timing
from app.runtime.times import maybe_time, maybe_us, to_time, to_us
from app.storage.engine import Engine

_COLUMNS: Final = (
    "id, tenant, name, cron, at, timezone, missed, paused, session_id, content, version,"
    " created_at, updated_at, next_at, retry_at, last_at, last_session_id, last_error"
)
_CREATE: Final = f"""
insert into schedules ({_COLUMNS})
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""  # noqa: S608 - made of constants of this room
_GET: Final = f"select {_COLUMNS} from schedules where tenant = $1 and id = $2"  # noqa: S608
_PAGE: Final = f"""
select {_COLUMNS} from schedules
where tenant = $1 and ($2::text is null or id < $2) order by id desc limit $3
"""  # noqa: S608 - made of constants of this room
_LOCK: Final = f"""
select {_COLUMNS}, clock_timestamp() as now from schedules
where tenant = $1 and id = $2 for update
"""  # noqa: S608 - made of constants of this room
_FIND: Final = f"select {_COLUMNS}, now() as now from schedules where id = $1"  # noqa: S608
_SAVE: Final = """
update schedules set name = $2, cron = $3, at = $4, timezone = $5, missed = $6, paused = $7,
    session_id = $8, content = $9, version = $10, updated_at = $11, next_at = $12,
    retry_at = $13, last_error = $14
where id = $1
"""
_DELETE: Final = "delete from schedules where id = $1"
_FORESTALL: Final = """
insert into idempotency (tenant, key, route, body_hash, status, body, session_id, created_at)
values ($1, $2, $3, $4, $5, $6, $7, now()) on conflict do nothing
"""
_DUE: Final = """
select id from schedules
where next_at <= now() and not paused and (retry_at is null or retry_at <= now())
order by next_at limit $1
"""

# Before the new one is seen, so one less than are kept.
_CUT: Final = f"""
    delete from schedule_runs where schedule_id = $1 and due_at < (
        select due_at from schedule_runs where schedule_id = $1
        order by due_at desc offset {MOST_RUNS - 2} limit 1)
"""  # noqa: S608 - made of constants of this room

# The run is noted also when the schedule has moved on, if a session came of it.
_ADVANCE: Final = f"""
with moved as (
    update schedules set next_at = $4, retry_at = null,
        last_at = case when $7 = 'skipped' then last_at else $6 end,
        last_session_id = coalesce($8, last_session_id),
        last_error = case when $7 = 'failed' then $9 end
    where id = $1 and version = $2 and next_at = $3
    returning 1
), noted as (
    insert into schedule_runs (schedule_id, due_at, at, outcome, session_id, error, by_hand)
    select id, $5::timestamptz, $6::timestamptz, $7::text, $8::text, $9::text, false
    from schedules where id = $1 and ($8 is not null or exists (select from moved))
    on conflict (schedule_id, due_at) do update
        set at = excluded.at, outcome = excluded.outcome, session_id = excluded.session_id,
            error = excluded.error
        where schedule_runs.session_id is null and excluded.session_id is not null
), cut as ({_CUT})
select exists (select from moved)
"""  # noqa: S608 - made of constants of this room

_NOTE: Final = f"""
with noted as (
    insert into schedule_runs (schedule_id, due_at, at, outcome, session_id, error, by_hand)
    select id, $2, $3, $4, $5, $6, $7 from schedules where id = $1
    on conflict do nothing
), cut as ({_CUT})
update schedules set last_at = $3, last_session_id = coalesce($5, last_session_id) where id = $1
"""  # noqa: S608 - made of constants of this room
_POSTPONE: Final = """
update schedules set retry_at = now() + $4::float8 * interval '1 second', last_error = $5
where id = $1 and version = $2 and next_at = $3
"""
_RUNS: Final = """
select due_at, at, outcome, session_id, error, by_hand from schedule_runs
where schedule_id = $1 order by due_at desc limit $2
"""


class _Locked:
    """A schedule under its lock."""

    def __init__(
        self, connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", seen: Seen
    ) -> None:
        self._connection = connection
        self._seen = seen

    @property
    def seen(self) -> Seen:
        """Return the schedule as it was when it was locked."""
        return self._seen

    async def save(self, row: ScheduleRow) -> None:
        """Store it with these values."""
        await self._connection.execute(
            _SAVE,
            row.id,
            row.name,
            row.timing.cron,
            maybe_time(row.timing.at_us),
            row.timing.timezone,
            row.missed,
            row.paused,
            row.session_id,
            row.content,
            row.version,
            to_time(row.updated_at_us),
            maybe_time(row.next_us),
            maybe_time(row.retry_us),
            row.last_error,
        )

    async def delete(self) -> None:
        """Remove it; its runs go with it."""
        await self._connection.execute(_DELETE, self._seen.row.id)

    async def forestall(self, record: Remember) -> bool:
        """Take the key of a firing; False when somebody has made it."""
        r = record
        tag = await self._connection.execute(
            _FORESTALL, r.tenant, r.key, r.route, r.body_hash, r.status, r.body, r.session_id
        )
        return tag == "INSERT 0 1"


class PostgresSchedules:
    """Schedules, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Write and read through this pool."""
        self._engine = engine

    async def create(self, row: ScheduleRow) -> None:
        """Store a new schedule."""
        await self._engine.run(_CREATE, *_values(row))

    async def get(self, tenant: str, schedule_id: str) -> ScheduleRow | None:
        """Return a schedule."""
        row = await self._engine.row(_GET, tenant, schedule_id)
        return _row_of(row) if row else None

    async def page(self, tenant: str, *, after: str | None, limit: int) -> list[ScheduleRow]:
        """Return schedules, newest first, after the given id."""
        return [_row_of(row) for row in await self._engine.rows(_PAGE, tenant, after, limit)]

    @asynccontextmanager
    async def locked(self, tenant: str, schedule_id: str) -> AsyncIterator[_Locked | None]:
        """Lock a schedule for a moment; None when there is none of this tenant."""
        async with self._engine.transaction() as connection:
            row = await connection.fetchrow(_LOCK, tenant, schedule_id)
            yield _Locked(connection, Seen(_row_of(row), to_us(row["now"]))) if row else None

    async def due(self, limit: int) -> Sequence[str]:
        """Return the ids of schedules with a firing to make, the longest waiting first."""
        return [row["id"] for row in await self._engine.rows(_DUE, limit)]

    async def find(self, schedule_id: str) -> Seen | None:
        """Return a schedule of any tenant, with the time."""
        row = await self._engine.row(_FIND, schedule_id)
        return Seen(_row_of(row), to_us(row["now"])) if row else None

    async def advance(self, row: ScheduleRow, run: Run, next_us: int | None) -> bool:
        """Note a run and set the next firing; False when the schedule has moved on meanwhile."""
        return bool(
            await self._engine.value(
                _ADVANCE,
                row.id,
                row.version,
                maybe_time(row.next_us),
                maybe_time(next_us),
                *_run_values(run),
            )
        )

    async def postpone(self, row: ScheduleRow, error: str, wait_s: float) -> None:
        """Note a fault and try the same firing again later."""
        due = maybe_time(row.next_us)
        await self._engine.run(_POSTPONE, row.id, row.version, due, wait_s, error)

    async def note(self, row: ScheduleRow, run: Run) -> None:
        """Note a run that was out of turn."""
        await self._engine.run(_NOTE, row.id, *_run_values(run), run.by_hand)

    async def runs(self, schedule_id: str, limit: int) -> list[Run]:
        """Return the latest runs, newest first."""
        return [
            Run(
                due_us=to_us(due_at),
                at_us=to_us(at),
                outcome=Outcome(outcome),
                session_id=session_id,
                error=error,
                by_hand=by_hand,
            )
            for due_at, at, outcome, session_id, error, by_hand in await self._engine.rows(
                _RUNS, schedule_id, limit
            )
        ]


def _run_values(run: Run) -> tuple[object, ...]:
    return to_time(run.due_us), to_time(run.at_us), run.outcome, run.session_id, run.error


def _values(row: ScheduleRow) -> tuple[object, ...]:
    return (
        row.id,
        row.tenant,
        row.name,
        row.timing.cron,
        maybe_time(row.timing.at_us),
        row.timing.timezone,
        row.missed,
        row.paused,
        row.session_id,
        row.content,
        row.version,
        to_time(row.created_at_us),
        to_time(row.updated_at_us),
        maybe_time(row.next_us),
        maybe_time(row.retry_us),
        maybe_time(row.last_us),
        row.last_session_id,
        row.last_error,
    )


def _row_of(row: asyncpg.Record) -> ScheduleRow:
    return ScheduleRow(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        timing=Timing(cron=row["cron"], at_us=maybe_us(row["at"]), timezone=row["timezone"]),
        missed=Missed(row["missed"]),
        paused=row["paused"],
        session_id=row["session_id"],
        content=row["content"],
        version=row["version"],
        created_at_us=to_us(row["created_at"]),
        updated_at_us=to_us(row["updated_at"]),
        next_us=maybe_us(row["next_at"]),
        retry_us=maybe_us(row["retry_at"]),
        last_us=maybe_us(row["last_at"]),
        last_session_id=row["last_session_id"],
        last_error=row["last_error"],
    )
