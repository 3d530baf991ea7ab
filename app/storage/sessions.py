"""Sessions as rows, their inboxes, and what idempotency keys stand for."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from app.core.events import SessionForked
from app.core.lifecycle import PendingKind
from app.runtime.errors import KeyTaken, StoreRefused
from app.runtime.ports.sessions import (
    Delivery,
    InboxKind,
    InboxRow,
    NewSession,
    Remember,
    Remembered,
    SessionRow,
)
from app.runtime.sessions.idempotency import GONE
from app.runtime.times import to_time
from app.storage.engine import Engine
from app.storage.sql import (
    DELIVER_TO_WEBHOOKS,
    EVENT_COLUMNS,
    EVENT_TYPES,
    FACT_COLUMNS,
    FACT_TYPES,
    JOURNAL_V,
    SESSION_COLUMNS,
    TOLD_TYPES,
    event_arrays,
    fact_values,
    session_of,
    told_arrays,
    unnested,
)

_FACTS: Final = ", ".join(f"${n}::{t}" for n, t in enumerate(FACT_TYPES, 16)).replace(
    "$25::text", "$25::text::text[]"
)

# A fork brings the events of another session, of which nobody is told again; what follows in it is
# its own.
CREATE: Final = f"""
with remembered as (
    insert into idempotency
        (tenant, key, route, body_hash, status, body, session_id, created_at)
    select $2, $27, $28, $29, $30, $31, $1, now() where $27::text is not null
    on conflict do nothing returning 1
), free as (
    select where $27::text is null or exists (select from remembered)
), made as (
    insert into sessions (id, tenant, agent, agent_version, model, mode, prompt, key_id, data_key,
        head, head_hash, parent, metadata, created_at, min_version, view, {FACT_COLUMNS},
        on_disconnect, updated_at, wake_at, epoch, inbox_head, inbox_seen, claims)
    select $1::text, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
        $14::timestamptz, $15, $42::bytea, {_FACTS}, $43, $14::timestamptz, now(), 0, 0, 0, 0
    from free
    returning 1
), stored as (
    insert into events ({EVENT_COLUMNS})
    select v.* from {unnested(EVENT_TYPES, 32)} as v, free
), notable as (
    select e.*, $2::text as tenant
    from {unnested(TOLD_TYPES, 44)} as e (session_id, seq, turn, type), free
    where e.seq > (
        select max(seq) from unnest($33::bigint[], $35::text[]) as f (seq, type)
        where f.type = '{SessionForked.TYPE}')
), told as (
    {DELIVER_TO_WEBHOOKS}
)
select exists (select from made)
"""  # noqa: S608 - made of constants of this room

_GET: Final = f"select {SESSION_COLUMNS} from sessions s where id = $2 and tenant = $1"  # noqa: S608 - made of constants

_LOCK: Final = f"{_GET} for update of s"

_PAGE: Final = f"""
select {SESSION_COLUMNS} from sessions s
where tenant = $1 and ($2::text is null or id < $2)
    and ($4::text is null or agent = $4) and ($5::text is null or $5 = any(tools))
    and ($6::text is null or $6 = case
        when status <> 'closed' and (status = 'active' or inbox_head > inbox_seen
            or (wake_at is not null and wake_at <= now()))
        then case when owner is null then 'queued' else 'running' end
        else status end)
order by id desc limit $3
"""  # noqa: S608 - made of constants of this room

# Few sessions wait for a person, and only they are in the index that this uses.
_PENDING: Final = f"""
select {SESSION_COLUMNS} from sessions s
where tenant = $1 and pending_kind = any($2) and ($3::text is null or id < $3)
order by id desc limit $4
"""  # noqa: S608 - made of constants of this room

_INBOX: Final = "select n, kind, payload from inbox where session_id = $1 and n > $2 order by n"

# Only under the lock on the session's row, which is what makes `inbox_head + 1` the next number.
# One that is due already keeps its place among those who wait.
DELIVER: Final = """
with placed as (
    insert into inbox (session_id, n, kind, subject, payload, created_at)
    select id, inbox_head + 1, $2, $3, $4, now() from sessions where id = $1 and not exists (
        select from inbox where session_id = $1 and kind = 'close' and subject is not null)
    on conflict (session_id, kind, subject) where subject is not null do nothing
    returning n
)
update sessions set inbox_head = placed.n, wake_at = least(wake_at, now()),
    ending = case when $2 in ('cancel', 'close') then placed.n else ending end
from placed where id = $1
returning inbox_head
"""

_NEWEST: Final = """
select i.kind from sessions s join inbox i on i.session_id = s.id and i.n = s.inbox_head
where s.id = $1 and s.inbox_head > s.inbox_seen
"""

WAKE: Final = "update sessions set wake_at = least(wake_at, now()) where id = $1"

# The chain verifies without the data key. Answers are sealed by another one, and their hashes
# are of what the client said.
ERASE: Final = """
update sessions set data_key = ''::bytea, metadata = null, view = null, updated_at = now()
where id = $1
"""
_ERASE_ANSWERS: Final = """
update idempotency set status = $2, body = ''::bytea, body_hash = ''::bytea where session_id = $1
"""
_ERASE_STATE: Final = "delete from snapshots where session_id = $1"

# The release of event generation 1 kept a key that was sent in quotes with them; a request that is
# repeated across the upgrade is found by that. It can go when no record of that release is kept.
_QUOTED: Final = "'\"' || $2::text || '\"'"

_RECALL: Final = f"""
select body_hash, status, body, location from idempotency
where tenant = $1 and key in ($2, {_QUOTED}) order by key = $2 desc limit 1
"""  # noqa: S608 - made of constants of this room

_REMEMBER: Final = f"""
insert into idempotency
    (tenant, key, route, body_hash, status, body, session_id, location, created_at)
select $1, $2, $3, $4, $5, $6, $7, $8, now()
where not exists (select from idempotency where tenant = $1 and key = {_QUOTED})
on conflict do nothing
"""  # noqa: S608 - made of constants of this room

_FINISH: Final = """
insert into idempotency
    (tenant, key, route, body_hash, status, body, session_id, location, created_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, now())
on conflict (tenant, key) do update set status = excluded.status, body = excluded.body,
    session_id = excluded.session_id, location = excluded.location
    where idempotency.status = 0
"""

_RETAKE: Final = """
update idempotency set created_at = now() where tenant = $1 and key = $2 and status = 0
    and created_at < now() - $3::float8 * interval '1 second'
"""

_DROP: Final = "delete from idempotency where tenant = $1 and key = $2 and status = 0"

_TRIES: Final = 3


class _Locked:
    """A session's row under its lock."""

    def __init__(
        self, connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", row: SessionRow
    ) -> None:
        self._connection = connection
        self._row = row

    @property
    def row(self) -> SessionRow:
        """Return the row as it was when it was locked."""
        return self._row

    async def deliver(self, delivery: Delivery) -> int | None:
        """Put a row into the inbox and wake the session; None when the subject is taken.

        Nor does anything come after a request to close: nobody would ever take it out.
        """
        n: int | None = await self._connection.fetchval(
            DELIVER, self._row.id, delivery.kind, delivery.subject, delivery.payload
        )
        return n

    async def newest(self) -> InboxKind | None:
        """Return the kind of the newest inbox row that the owner has not seen, if there is one."""
        kind: str | None = await self._connection.fetchval(_NEWEST, self._row.id)
        return None if kind is None else InboxKind(kind)

    async def wake(self) -> None:
        """Make the session due now."""
        await self._connection.execute(WAKE, self._row.id)

    async def erase(self) -> None:
        """Destroy the session's data key, and every copy of its content under another key."""
        await self._connection.execute(ERASE, self._row.id)
        await self._connection.execute(_ERASE_ANSWERS, self._row.id, GONE)
        await self._connection.execute(_ERASE_STATE, self._row.id)

    async def recall(self, key: str) -> Remembered | None:
        """Return what is remembered under an idempotency key of this tenant."""
        row = await self._connection.fetchrow(_RECALL, self._row.tenant, key)
        return Remembered(*row.values()) if row else None

    async def remember(self, record: Remember) -> None:
        """Write an idempotency record in this transaction.

        Raises:
            KeyTaken: when the key stands for something; let it end the block, so that nothing of
                this transaction remains.

        """
        tag = await self._connection.execute(_REMEMBER, *_record(record))
        if tag != "INSERT 0 1":
            raise KeyTaken(f"The idempotency key {record.key!r} is in use.")


class PostgresSessions:
    """Sessions, inboxes and idempotency records, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Write and read through this pool."""
        self._engine = engine

    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        """Create a session; or return what the idempotency key stands for already."""
        for _ in range(_TRIES):
            if await self._engine.value(CREATE, *_create_values(new, remember)):
                return None
            known = remember and await self.recall(remember.tenant, remember.key)
            if known:
                return known
        raise StoreRefused("The session was not created, and its key stands for nothing.")

    async def get(self, tenant: str, session_id: str) -> SessionRow | None:
        """Return a session's row."""
        row = await self._engine.row(_GET, tenant, session_id)
        return session_of(row) if row else None

    async def page(
        self,
        tenant: str,
        *,
        after: str | None,
        limit: int,
        status: str | None,
        agent: str | None,
        tool: str | None,
    ) -> list[SessionRow]:
        """Return rows, newest first, after the given id."""
        rows = await self._engine.rows(_PAGE, tenant, after, limit, agent, tool, status)
        return [session_of(row) for row in rows]

    async def pending(
        self, tenant: str, kinds: Sequence[PendingKind], *, after: str | None, limit: int
    ) -> list[SessionRow]:
        """Return the rows of sessions that wait for one of these, newest first, after an id."""
        rows = await self._engine.rows(_PENDING, tenant, kinds, after, limit)
        return [session_of(row) for row in rows]

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[_Locked | None]:
        """Lock a session's row for a moment; None when there is none of this tenant.

        Of many who want the same row only some wait for it on a connection.
        """
        async with self._engine.turns.at(session_id), self._engine.transaction() as connection:
            row = await connection.fetchrow(_LOCK, tenant, session_id)
            yield _Locked(connection, session_of(row)) if row else None

    async def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        """Return the inbox rows after a position, in order."""
        rows = await self._engine.rows(_INBOX, session_id, after)
        return [InboxRow(n, InboxKind(kind), payload) for n, kind, payload in rows]

    async def recall(self, tenant: str, key: str) -> Remembered | None:
        """Return what is remembered under an idempotency key."""
        row = await self._engine.row(_RECALL, tenant, key)
        return Remembered(*row.values()) if row else None

    async def begin_remembering(self, record: Remember) -> Remembered | None:
        """Mark a key as in flight (status 0), or return what is there already.

        The mark of a process that died stays, for its effect may have happened, until somebody
        takes it over (`retake_mark`).
        """
        for _ in range(_TRIES):
            if await self._engine.run(_REMEMBER, *_record(record)):
                return None
            known = await self.recall(record.tenant, record.key)
            if known:
                return known
        raise StoreRefused(f"The idempotency key {record.key!r} comes and goes.")

    async def finish_remembering(self, record: Remember) -> None:
        """Replace an in-flight mark by the answer; an answer that is there already stays."""
        await self._engine.run(_FINISH, *_record(record))

    async def retake_mark(self, record: Remember, older_s: float) -> bool:
        """Make an in-flight mark that is older than this one's own; False when it is not."""
        return bool(await self._engine.run(_RETAKE, record.tenant, record.key, older_s))

    async def drop_mark(self, record: Remember) -> None:
        """Take an in-flight mark away; an answer stays."""
        await self._engine.run(_DROP, record.tenant, record.key)


def _record(r: Remember) -> tuple[object, ...]:
    return r.tenant, r.key, r.route, r.body_hash, r.status, r.body, r.session_id, r.location


def _create_values(new: NewSession, remember: Remember | None) -> tuple[object, ...]:
    r = remember
    events = [(new.id, event) for event in new.events]
    return (
        new.id,
        new.tenant,
        new.agent,
        new.agent_version,
        new.model,
        new.mode,
        new.prompt,
        new.key.key_id,
        new.key.wrapped,
        new.events[-1].seq if new.events else 0,
        new.head_hash,
        new.parent,
        new.metadata,
        to_time(new.created_at_us),
        JOURNAL_V,
        *fact_values(new.facts),
        *((r.key, r.route, r.body_hash, r.status, r.body) if r else (None,) * 5),
        *event_arrays(events),
        new.view,
        new.on_disconnect,
        *told_arrays(events),
    )
