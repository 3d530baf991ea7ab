"""Invariants that can be seen in the database without a key, each question in one statement.

One statement sees one moment, and whatever changes a session is one statement or transaction too
(docs/writes.md); so what is found is no session in motion.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from asyncpg import Record

from app.runtime.explaining.findings import Finding, Invariant
from app.runtime.ports.sessions import SessionRow
from app.storage.engine import Engine
from app.storage.sql import SESSION_COLUMNS, session_of

SUSPECT: Final = (
    "(owner is null and wake_at is null and timer_at is null and (status = 'active'"
    " or inbox_head > inbox_seen or (status = 'waiting' and pending_kind is null)))"
    " or inbox_seen > inbox_head"
)
"""No session is ever like this. An index has this condition word for word, so it is empty."""

MOST: Final = 100

GRACE_S: Final = 10.0
"""For how long an owner's lease is over before somebody should have seen it: they look each second.
"""

_STATES: Final = f"""
s.id, s.head, s.inbox_head, s.inbox_seen, {SUSPECT} as suspect, s.owner,
s.owner is not null and s.wake_at is null
    and not exists (select from workers w where w.id = s.owner
        and w.lease_until > now() - $1::float8 * interval '1 second')
    and exists (select from workers w where w.lease_until > now()
        and w.started_at < now() - $1::float8 * interval '1 second') as abandoned
"""  # noqa: S608 - made of constants of this room

# The last events only, by the primary key, newest first: how many is the caller's to say.
CHECK: Final = f"""
select {_STATES}, j.*, u.*, h.hash is not distinct from s.head_hash as hash_fits
from sessions s
cross join lateral (
    select count(*) as events, min(seq) as first, max(seq) as last,
        count(*) filter (where type = 'turn.ended')
            - count(distinct turn) filter (where type = 'turn.ended') as ended_again
    from (
        select seq, type, turn from events e where e.session_id = s.id
        order by seq desc limit $3::bigint
    ) as newest
) j
cross join lateral (
    select count(*) as unseen from inbox i where i.session_id = s.id and i.n > s.inbox_seen
) u
left join lateral (
    select hash from events e where e.session_id = s.id and e.seq = s.head
) h on true
where s.id = any($2::text[]) order by s.id
"""  # noqa: S608 - made of constants of this room

# Postgres cannot know that hardly any row is like this. Only the index has this order, so reading
# there is cheaper than reading and sorting all, as long as the limit is known when it plans.
SUSPECTS: Final = f"""
select {_STATES} from sessions s where {SUSPECT} order by s.created_at limit {MOST}
"""  # noqa: S608 - made of constants of this room

# Owners are few and sessions many, so the owners are found by hopping over the index.
ABANDONED: Final = f"""
with recursive owners as (
    (select owner from sessions where owner is not null order by owner limit 1)
    union all
    select (select s.owner from sessions s where s.owner > o.owner order by s.owner limit 1)
    from owners o where o.owner is not null
), lost as (
    select owner as who from owners where owner is not null and not exists (
        select from workers w where w.id = owner and w.lease_until > now())
)
select {_STATES} from lost l join sessions s on s.owner = l.who limit {MOST}
"""  # noqa: S608 - made of constants of this room

_AFTER: Final = "select id from sessions where id > $1 order by id limit $2"
_NEWEST: Final = "select id from sessions order by id desc limit $1"
_ROW: Final = f"select {SESSION_COLUMNS} from sessions s where id = $1"  # noqa: S608 - made of constants


class PostgresAudit:
    """Looks at sessions of all tenants; changes nothing."""

    def __init__(self, engine: Engine, grace_s: float = GRACE_S) -> None:
        """Read through this pool."""
        self._engine = engine
        self._grace_s = grace_s

    async def after(self, session_id: str, limit: int) -> list[str]:
        """Return the ids of the next sessions, in the order of their ids."""
        return [row["id"] for row in await self._engine.rows(_AFTER, session_id, limit)]

    async def newest(self, limit: int) -> list[str]:
        """Return the ids of the newest sessions."""
        return [row["id"] for row in await self._engine.rows(_NEWEST, limit)]

    async def row(self, session_id: str) -> SessionRow | None:
        """Return a session's row, whoever's it is."""
        row = await self._engine.row(_ROW, session_id)
        return session_of(row) if row else None

    async def check(self, ids: Sequence[str], events: int) -> list[Finding]:
        """Look at these sessions, and at up to so many of the last events of each."""
        rows = await self._engine.rows(CHECK, self._grace_s, ids, events)
        return [found for row in rows for found in (*_of_row(row), *_of_journal(row, events))]

    async def suspects(self) -> list[Finding]:
        """Return sessions that nobody will run, of all there are, up to a hundred."""
        rows = await self._engine.rows(SUSPECTS, self._grace_s)
        rows += await self._engine.rows(ABANDONED, self._grace_s)
        return [found for row in rows for found in _of_row(row)]


def _of_row(row: Record) -> Iterator[Finding]:
    said, taken = row["inbox_head"], row["inbox_seen"]
    if taken > said:
        detail = f"{taken} messages were taken of {said}"
        yield Finding(row["id"], Invariant.INBOX, detail)
    elif row["suspect"]:
        detail = "it is not at rest, and nobody owns it, no time is set for it, it waits for nobody"
        yield Finding(row["id"], Invariant.OWNED, detail)
    if row["abandoned"]:
        detail = f"its owner {row['owner']} lost its lease, and no worker makes it due"
        yield Finding(row["id"], Invariant.SWEPT, detail)


def _of_journal(row: Record, most: int) -> Iterator[Finding]:
    session_id, head = row["id"], row["head"]
    events, first, last = row["events"], row["first"] or 0, row["last"] or 0
    if last > head:
        detail = f"the journal goes on to {last}, beyond the row's head {head}"
        yield Finding(session_id, Invariant.HEAD, detail, head + 1)
    elif last < head:
        detail = f"the journal ends at {last}, before the row's head {head}"
        yield Finding(session_id, Invariant.HEAD, detail, last + 1)
    elif not row["hash_fits"]:
        detail = "the row holds another hash than its last event"
        yield Finding(session_id, Invariant.HEAD, detail, head)
    if events and (last - first + 1 != events or (events < most and first > 1)):
        detail = f"of the numbers from {1 if events < most else first} to {last} some are missing"
        yield Finding(session_id, Invariant.DENSE, detail)
    if row["ended_again"]:
        yield Finding(session_id, Invariant.TURN_ENDS, "a turn has more than one turn.ended")
    missing = row["inbox_head"] - row["inbox_seen"] - row["unseen"]
    if missing > 0:
        detail = f"{missing} messages that were not taken are gone from the inbox"
        yield Finding(session_id, Invariant.INBOX, detail)
