"""What has served its time, removed in small transactions that wait for nobody's lock.

Each finds its rows by an index, the oldest first, and leaves what somebody holds for a later time.
"""

from typing import Final

from app.runtime.side.retention import Keeping, Waste
from app.storage.engine import Engine

MOST_SESSIONS: Final = 50
MOST_EVENTS: Final = 5000
MOST_ROWS: Final = 1000
_DAY_S: Final = 86_400.0

# A session that ended, is not asked for anything, and that nobody owns: it can only be woken by a
# message, which takes the row's lock first and then finds no row. A schedule that will speak to it
# keeps it; there are few, so they are read once and not looked up for each session.
_RESTS: Final = """
ended_at < now() - make_interval(secs => $1::float8)
and updated_at < now() - make_interval(secs => $1::float8)
and status not in ('active', 'waiting') and owner is null and wake_at is null and timer_at is null
and inbox_head = inbox_seen
and id not in (select c.session_id from schedules c
    where c.session_id is not null and not c.paused and c.next_at is not null)
"""

# A firing's key is needed until its schedule has moved on: else a worker that made it and died
# would be followed by one that makes it again.
_OLD_ANSWER: Final = """
i.created_at < now() - make_interval(secs => $1::float8)
and not exists (select from schedules s where i.key like 'schedule:%'
    and s.id = split_part(i.key, ':', 2) and s.next_at <= i.created_at)
"""

# The text is in the journal. Rows with a subject stay as long as their session: they are what a
# second decision on the same thing is told by.
_OLD_MESSAGE: Final = """
i.subject is null and i.created_at < now() - make_interval(secs => $1::float8)
and i.n <= s.inbox_seen
"""

_WASTE: Final = f"""
select exists (select from sessions where {_RESTS}),
    exists (select from idempotency i where {_OLD_ANSWER.replace("$1", "$2")}),
    exists (select from inbox i join sessions s on s.id = i.session_id
        where {_OLD_MESSAGE.replace("$1", "$3")})
"""  # noqa: S608 - made of constants of this room

# The rows of the other tables are found by an array: a join could be planned as a walk over all.
PURGE: Final = f"""
with old as (
    select id, sum(head) over (order by ended_at, id) - head as before
    from (
        select id, head, ended_at from sessions where {_RESTS}
        order by ended_at limit {MOST_SESSIONS} for update skip locked
    ) as first
), gone as (
    delete from sessions
    where id = any(array(select id from old where before < {MOST_EVENTS})) returning id
), ids as materialized (
    select array_agg(id) as gone from gone
), trace as (
    delete from events where session_id = any((select gone from ids)::text[])
), told as (
    delete from inbox where session_id = any((select gone from ids)::text[])
), folded as (
    delete from snapshots where session_id = any((select gone from ids)::text[])
)
select count(*) from gone
"""  # noqa: S608 - made of constants of this room

FORGET: Final = f"""
delete from idempotency where ctid = any(array(
    select i.ctid from idempotency i where {_OLD_ANSWER}
    order by i.created_at limit {MOST_ROWS} for update skip locked))
"""  # noqa: S608 - made of constants of this room

TIDY: Final = f"""
delete from inbox where ctid = any(array(
    select i.ctid from inbox i join sessions s on s.id = i.session_id where {_OLD_MESSAGE}
    order by i.created_at limit {MOST_ROWS} for update of i skip locked))
"""  # noqa: S608 - made of constants of this room


class PostgresRetention:
    """Retention, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Work through this pool."""
        self._engine = engine

    async def waste(self, keeping: Keeping) -> list[Waste]:
        """Return of which kinds there is something to remove."""
        row = await self._engine.row(_WASTE, keeping.sessions_s, keeping.answers_s, _DAY_S)
        found = zip((Waste.SESSIONS, Waste.ANSWERS, Waste.MESSAGES), row or (), strict=False)
        return [waste for waste, there in found if there]

    async def remove(self, waste: Waste, keeping: Keeping) -> int:
        """Remove one small batch; return how many of the kind went."""
        match waste:
            case Waste.SESSIONS:
                return await self._purge(keeping)
            case Waste.ANSWERS:
                return await self._engine.run(FORGET, keeping.answers_s)
            case Waste.MESSAGES:
                return await self._engine.run(TIDY, _DAY_S)

    async def _purge(self, keeping: Keeping) -> int:
        async with self._engine.transaction() as connection:
            await connection.execute("set local surefoot.erasing = 'on'")
            count: int = await connection.fetchval(PURGE, keeping.sessions_s)
        return count
