"""The journal: batches of appends in one statement, each entry fenced by its epoch and head."""

from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.journal import Append, Appended, Fate, HeadInfo, SealedEvent, Snapshot
from app.runtime.times import maybe_time
from app.storage.engine import Engine
from app.storage.sql import (
    DELIVER_TO_WEBHOOKS,
    EVENT_COLUMNS,
    EVENT_TYPES,
    FACT_COLUMNS,
    FACT_TYPES,
    JOURNAL_V,
    TOLD_TYPES,
    event_arrays,
    event_of,
    fact_values,
    told_arrays,
    unnested,
)

_ENTRY_TYPES: Final = tuple(
    f"{kind}[]"
    for kind in (
        "text",
        "bigint",
        "bigint",
        "bigint",
        "bytea",
        "bigint",
        "bool",
        "bool",
        "bool",
        "timestamptz",
        "timestamptz",
        "bytea",
        *FACT_TYPES,
    )
)

_EVENTS_AT: Final = len(_ENTRY_TYPES) + 1
_TOLD_AT: Final = _EVENTS_AT + len(EVENT_TYPES)

# Rows are locked one by one by their ids (lateral), never by reading a whole table, nor all that
# have an owner (the words that ask for one fit no partial index). Those locked by others are left
# for a later try, and the conditions are checked again on the row as it is under the lock. The
# release depends on the inbox as it is then: a message that arrives at the last moment keeps the
# owner. It also keeps back an entry that must not be behind (an approval that lapses). A timer
# belongs to the state in which a session came to rest; it is put by Postgres's clock, whatever the
# worker's. Deliveries of webhooks are committed with their events; few events are ever told.
APPEND: Final = f"""
with entry as (
    select * from {unnested(_ENTRY_TYPES, 1)} as e (
        id, epoch, expected, head, head_hash, inbox_seen, answered, unless_behind, release,
        timer_at, set_at, view,
        {FACT_COLUMNS})
), locked as (
    select e.* from (select * from entry e order by e.id) e, lateral (
        select from sessions s
        where s.id = e.id and s.epoch = e.epoch and s.head = e.expected
            and (s.owner is null) is false
            and not (e.unless_behind and s.inbox_head > e.inbox_seen)
        for update of s skip locked
    ) s
), written as (
    update sessions s set
        head = l.head, head_hash = l.head_hash, inbox_seen = l.inbox_seen,
        claims = case when l.answered then 0 else s.claims end,
        view = coalesce(l.view, s.view),
        status = l.status, phase = l.phase, turn = l.turn, step = l.step,
        stop_reason = l.stop_reason, pending_kind = l.pending_kind,
        usage = l.usage, limits = l.limits, trace_id = l.trace_id, tools = l.tools::text[],
        ended_at = l.ended_at, updated_at = now(),
        min_version = greatest(s.min_version, {JOURNAL_V}),
        owner = case when l.release and s.inbox_head = l.inbox_seen then null else s.owner end,
        wake_at = case when l.release and s.inbox_head = l.inbox_seen then null else s.wake_at end,
        timer_at = case when l.release and s.inbox_head = l.inbox_seen
            then coalesce(now() + (l.timer_at - l.set_at), l.timer_at) end
    from locked l where s.id = l.id
    returning s.id, s.tenant, s.inbox_head,
        l.release and s.inbox_head = l.inbox_seen as released
), stored as (
    insert into events ({EVENT_COLUMNS})
    select v.* from {unnested(EVENT_TYPES, _EVENTS_AT)} as v ({EVENT_COLUMNS})
    where v.session_id in (select id from written)
), notable as materialized (
    select v.*, w.tenant from {unnested(TOLD_TYPES, _TOLD_AT)} as v (session_id, seq, turn, type)
    join written w on w.id = v.session_id
), told as (
    {DELIVER_TO_WEBHOOKS}
)
select id, inbox_head, released from written
"""  # noqa: S608 - made of constants of this room

# It queues for the row, on which the conditions are checked when the lock is its own. A crowd that
# never leaves the row alone gives way to it in its turn.
APPEND_IN_TURN: Final = APPEND.replace("for update of s skip locked", "for update of s")

_WHERE_THEY_ARE: Final = """
select id, epoch, head, inbox_head from sessions where id = any($1) and (owner is null) is false
"""

_HEADS: Final = """
select id, head, head_hash, epoch, owner, inbox_head,
    status not in ('active', 'waiting') and inbox_head = inbox_seen and owner is null
        and (wake_at is null or wake_at > now()) as idle
from sessions where id = any($1)
"""

_READ: Final = """
select seq, v, type, phase, turn, step, at, payload, hash
from events where session_id = $1 and seq > $2 order by seq limit $3
"""

# The length of a payload is known without reading it.
_READ_BOUNDED: Final = """
select seq, v, type, phase, turn, step, at, payload, hash
from (
    select *, sum(octet_length(payload)) over (order by seq) - octet_length(payload) as before
    from (
        select * from events where session_id = $1 and seq > $2 order by seq limit $3
    ) as page
) as sized
where before < $4 order by seq
"""

_READ_MANY: Final = """
select e.seq, e.v, e.type, e.phase, e.turn, e.step, e.at, e.payload, e.hash, e.session_id
from unnest($1::text[], $2::bigint[]) as a (id, seq)
join events e on e.session_id = a.id and e.seq > a.seq
order by e.session_id, e.seq
"""

_SAVE_SNAPSHOT: Final = """
insert into snapshots (session_id, seq, state_v, payload) values ($1, $2, $3, $4)
on conflict (session_id) do update
    set seq = excluded.seq, state_v = excluded.state_v, payload = excluded.payload
    where snapshots.seq <= excluded.seq
"""

_SNAPSHOT: Final = "select seq, state_v, payload from snapshots where session_id = $1"


class PostgresJournal:
    """The journal of every session, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Write and read through this pool."""
        self._engine = engine

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        """Write entries of different sessions in one statement; answers in the same order.

        Raises:
            StoreUnavailable: when it is not known whether the batch was committed.
            StoreRefused: when Postgres refuses it; nothing was written.

        """
        return await self._append(APPEND, batch) if batch else []

    async def append_in_turn(self, entry: Append) -> Appended:
        """Write one entry, queuing for its row; skipped when its turn does not come in time.

        Raises:
            StoreUnavailable: when it is not known whether the entry was committed.
            StoreRefused: when Postgres refuses it; nothing was written.

        """
        try:
            (appended,) = await self._append(APPEND_IN_TURN, [entry])
        except StoreUnavailable as unavailable:
            if isinstance(unavailable.__cause__, asyncpg.LockNotAvailableError):
                return Appended(Fate.SKIPPED)
            raise
        return appended

    async def _append(self, statement: str, batch: Sequence[Append]) -> list[Appended]:
        entries = [list(column) for column in zip(*map(_entry, batch), strict=True)]
        events = [(a.session_id, event) for a in batch for event in a.events]
        arrays = (*event_arrays(events), *told_arrays(events))
        rows = await self._engine.rows(statement, *entries, *arrays)
        written = {i: Appended(Fate.WRITTEN, inbox, released) for i, inbox, released in rows}
        if len(written) < len(batch):
            written |= await self._fates([a for a in batch if a.session_id not in written])
        return [written[a.session_id] for a in batch]

    async def _fates(self, missing: Sequence[Append]) -> dict[str, Appended]:
        """Tell those that are fenced off, or behind, from those whose row was locked by someone."""
        rows = await self._engine.rows(_WHERE_THEY_ARE, [a.session_id for a in missing])
        there = {i: (epoch, head, inbox) for i, epoch, head, inbox in rows}
        return {a.session_id: _fate(a, *there.get(a.session_id, (0, 0, 0))) for a in missing}

    async def read(
        self, session_id: str, after: int, limit: int, most_bytes: int | None = None
    ) -> list[SealedEvent]:
        """Return up to `limit` events after a sequence number, in order.

        With `most_bytes`, none after the one with which their payloads reach that size.
        """
        bounds = (limit,) if most_bytes is None else (limit, most_bytes)
        statement = _READ if most_bytes is None else _READ_BOUNDED
        rows = await self._engine.rows(statement, session_id, after, *bounds)
        return [event_of(row) for row in rows]

    async def read_many(self, after: Mapping[str, int]) -> dict[str, list[SealedEvent]]:
        """Return all events after the given numbers, of several sessions at once."""
        found: dict[str, list[SealedEvent]] = {session_id: [] for session_id in after}
        rows = await self._engine.rows(_READ_MANY, list(after), list(after.values()))
        for row in rows:
            found[row["session_id"]].append(event_of(row))
        return found

    async def heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        """Return where each journal ends now; sessions that are not there are left out."""
        rows = await self._engine.rows(_HEADS, ids)
        return {
            row["id"]: HeadInfo(
                row["head"],
                row["head_hash"],
                row["epoch"],
                row["idle"],
                row["owner"],
                row["inbox_head"],
            )
            for row in rows
        }

    async def save_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, replacing an older one."""
        await self._engine.run(
            _SAVE_SNAPSHOT, session_id, snapshot.seq, snapshot.state_v, snapshot.payload
        )

    async def latest_snapshot(self, session_id: str) -> Snapshot | None:
        """Return the newest snapshot."""
        row = await self._engine.row(_SNAPSHOT, session_id)
        return Snapshot(*row.values()) if row else None


def _fate(a: Append, epoch: int, head: int, inbox_head: int) -> Appended:
    """Return why an entry was not written, by the row as it is after that."""
    if (epoch, head) != (a.epoch, a.expected_head):
        return Appended(Fate.FENCED)
    if a.unless_behind and inbox_head > a.inbox_seen:
        return Appended(Fate.BEHIND, inbox_head)
    return Appended(Fate.SKIPPED)


def _entry(a: Append) -> tuple[object, ...]:
    return (
        a.session_id,
        a.epoch,
        a.expected_head,
        a.head,
        a.head_hash,
        a.inbox_seen,
        a.answered,
        a.unless_behind,
        a.release is not None,
        maybe_time(a.release.timer_us) if a.release else None,
        maybe_time(a.release.now_us) if a.release else None,
        a.view,
        *fact_values(a.facts),
    )
