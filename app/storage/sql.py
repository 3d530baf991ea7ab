"""Pieces that several statements share: columns in one order, and the values that go into them."""

from collections.abc import Iterable, Sequence
from typing import Final

from asyncpg import Record

from app.runtime.ports.journal import Facts, SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.sessions import SessionRow
from app.runtime.times import maybe_time, maybe_us, to_time, to_us

JOURNAL_V: Final = 2
"""The generation of events this code writes and reads; raised with any event's schema version.

A session that was written by a newer release is not claimed by an older one.
"""

ALIVE: Final = "select array_agg(id) from workers where lease_until > now()"
"""The workers whose lease holds, by Postgres's clock; null when there is none."""


def unowned(row: str, alive: str) -> str:
    """Return the condition that a session has no living owner."""
    return f"coalesce({row}.owner <> all(({alive})::text[]), true)"


EVENT_TYPES: Final = (
    "text[]",
    "bigint[]",
    "int[]",
    "text[]",
    "text[]",
    "int[]",
    "int[]",
    "timestamptz[]",
    "bytea[]",
    "bytea[]",
)
TOLD_TYPES: Final = ("text[]", "bigint[]", "int[]", "text[]")
EVENT_COLUMNS: Final = "session_id, seq, v, type, phase, turn, step, at, payload, hash"


def unnested(types: Sequence[str], first: int) -> str:
    """Return `unnest($n::type, …)` from the given parameter on."""
    return "unnest(" + ", ".join(f"${n}::{t}" for n, t in enumerate(types, first)) + ")"


def event_arrays(events: Iterable[tuple[str, SealedEvent]]) -> list[list[object]]:
    """Return events of any sessions as one array a column."""
    rows = [
        (i, e.seq, e.v, e.type, e.phase, e.turn, e.step, to_time(e.at_us), e.payload, e.hash)
        for i, e in events
    ]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in EVENT_TYPES]


def told_arrays(events: Iterable[tuple[str, SealedEvent]]) -> list[list[object]]:
    """Return the events that endpoints are told of, of any sessions, as one array a column."""
    rows = [(i, e.seq, e.turn, e.told) for i, e in events if e.told is not None]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in TOLD_TYPES]


def event_of(row: Record) -> SealedEvent:
    """Return a stored event; its columns come first, from `seq` on and in their order."""
    seq, v, kind, phase, turn, step, at, payload, link = row[:9]
    return SealedEvent(seq, v, kind, phase, turn, step, to_us(at), payload, link)


DELIVER_TO_WEBHOOKS: Final = """
insert into deliveries (id, webhook_id, tenant, session_id, seq, turn, type,
    status, attempts, next_at, created_at)
select 'dlv_' || lpad(to_hex((extract(epoch from now()) * 1000000)::bigint), 14, '0')
        || encode(substr(sha256(convert_to(concat_ws('/', w.id, v.session_id, v.seq), 'UTF8')),
            1, 8), 'hex'),
    w.id, w.tenant, v.session_id, v.seq, v.turn, v.type, 'pending', 0, now(), now()
from notable v
join webhooks w on w.tenant = v.tenant and w.enabled and v.type = any(w.events)
"""
"""Part of a statement that stores the events which `notable` names, with their tenants.

The type of a delivery is the name under which it is told, not always that of its event.
"""

FACT_TYPES: Final = (
    "text",
    "text",
    "int",
    "int",
    "text",
    "text",
    "text",
    "text",
    "text",
    "text",
    "timestamptz",
)
FACT_COLUMNS: Final = (
    "status, phase, turn, step, stop_reason, pending_kind, usage, limits, trace_id, tools, ended_at"
)


def fact_values(facts: Facts) -> tuple[object, ...]:
    """Return the plain facts in the order of their columns; tools as the text of an array."""
    return (
        facts.status,
        facts.phase,
        facts.turn,
        facts.step,
        facts.stop_reason,
        facts.pending_kind,
        facts.usage,
        facts.limits,
        facts.trace_id,
        _array_text(facts.tools),
        maybe_time(facts.ended_at_us),
    )


def _array_text(items: Iterable[str]) -> str:
    """Write an array as Postgres reads it: arrays of arrays would all have to be of one length."""
    quoted = (item.replace("\\", "\\\\").replace('"', '\\"') for item in items)
    return "{" + ",".join(f'"{item}"' for item in quoted) + "}"


SESSION_COLUMNS: Final = (
    "s.*, s.wake_at is not null and s.wake_at <= now() as waking, exists (select from workers w"
    " where w.id = s.owner and w.lease_until > now()) as owner_alive"
)


def session_of(row: Record) -> SessionRow:
    """Return a session from `SESSION_COLUMNS`."""
    facts = Facts(
        row["status"],
        row["phase"],
        row["turn"],
        row["step"],
        row["stop_reason"],
        row["pending_kind"],
        row["usage"],
        row["limits"],
        row["trace_id"],
        tuple(row["tools"]),
        maybe_us(row["ended_at"]),
    )
    return SessionRow(
        id=row["id"],
        tenant=row["tenant"],
        agent=row["agent"],
        agent_version=row["agent_version"],
        model=row["model"],
        mode=row["mode"],
        prompt=row["prompt"],
        facts=facts,
        key=WrappedKey(row["key_id"], row["data_key"]),
        head=row["head"],
        head_hash=row["head_hash"],
        epoch=row["epoch"],
        inbox_head=row["inbox_head"],
        inbox_seen=row["inbox_seen"],
        owner=row["owner"],
        owner_alive=row["owner_alive"],
        waking=row["waking"],
        created_at_us=to_us(row["created_at"]),
        updated_at_us=to_us(row["updated_at"]),
        parent=row["parent"],
        metadata=row["metadata"],
        view=row["view"],
        timer_at_us=maybe_us(row["timer_at"]),
        claims=row["claims"],
        on_disconnect=row["on_disconnect"],
    )
