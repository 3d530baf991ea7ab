"""Sessions, their journal and inboxes, workers, idempotency records, snapshots, tools.

Every key begins with a session or a tenant, and nothing refers across sessions, so the same
schema can be spread over several Postgres. Ids are compared bytewise (`collate "C"`): they are
time-ordered, and the order must not depend on the locale of a database.

The row of a session is updated many times in its life, mostly in columns without an index: the
fill factor leaves room for those updates to stay on their page.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SESSIONS = """
create table sessions (
    id text collate "C" primary key,
    tenant text collate "C" not null,
    agent text not null,
    agent_version integer not null,
    model text not null,
    mode text not null,
    prompt text not null,
    status text not null,
    phase text,
    turn integer not null,
    step integer not null,
    stop_reason text,
    pending_kind text,
    usage text not null,
    limits text not null,
    tools text[] not null,
    trace_id text not null,
    parent text collate "C",
    created_at timestamptz not null,
    updated_at timestamptz not null,
    ended_at timestamptz,
    wake_at timestamptz,
    timer_at timestamptz,
    owner text collate "C",
    epoch bigint not null,
    head bigint not null,
    head_hash bytea not null,
    inbox_head bigint not null,
    inbox_seen bigint not null,
    claims integer not null,
    min_version integer not null,
    key_id text not null,
    data_key bytea not null,
    metadata bytea,
    view bytea
) with (fillfactor = 70)
"""

_EVENTS = """
create table events (
    session_id text collate "C" not null,
    seq bigint not null,
    v integer not null,
    type text not null,
    phase text,
    turn integer not null,
    step integer not null,
    at timestamptz not null,
    payload bytea not null,
    hash bytea not null,
    primary key (session_id, seq)
)
"""

_INBOX = """
create table inbox (
    session_id text collate "C" not null,
    n bigint not null,
    kind text not null,
    subject text,
    payload bytea not null,
    created_at timestamptz not null,
    primary key (session_id, n)
)
"""

_WORKERS = """
create table workers (
    id text collate "C" primary key,
    lease_until timestamptz not null,
    started_at timestamptz not null,
    version integer not null
)
"""

_IDEMPOTENCY = """
create table idempotency (
    tenant text collate "C" not null,
    key text collate "C" not null,
    route text not null,
    body_hash bytea not null,
    status integer not null,
    body bytea not null,
    session_id text collate "C",
    created_at timestamptz not null,
    primary key (tenant, key)
)
"""

_SNAPSHOTS = """
create table snapshots (
    session_id text collate "C" primary key,
    seq bigint not null,
    state_v integer not null,
    payload bytea not null
)
"""

_TOOLS = """
create table tools (
    tenant text collate "C" not null,
    name text collate "C" not null,
    version integer not null,
    spec text not null,
    created_at timestamptz not null,
    primary key (tenant, name, version)
)
"""

_TOOL_HEADS = """
create table tool_heads (
    tenant text collate "C" not null,
    name text collate "C" not null,
    version integer not null,
    deleted boolean not null,
    primary key (tenant, name)
)
"""

_INDEXES = (
    "create index sessions_list on sessions (tenant, id desc)",
    "create index sessions_wake on sessions (tenant, wake_at) where wake_at is not null",
    "create index sessions_timer on sessions (timer_at) where timer_at is not null",
    "create index sessions_owner on sessions (owner) where owner is not null",
    (
        "create unique index inbox_subject on inbox (session_id, kind, subject)"
        " where subject is not null"
    ),
)

# The journal is append-only. Erasure and retention say so first, in their own transaction:
# `set local surefoot.erasing = 'on'`.
_KEEP_EVENTS = """
create function keep_events() returns trigger language plpgsql as $$
begin
    if coalesce(current_setting('surefoot.erasing', true), '') <> 'on' then
        raise exception 'the journal is append-only' using errcode = 'restrict_violation';
    end if;
    return null;
end
$$
"""
_EVENTS_KEPT = """
create trigger events_kept before update or delete or truncate on events
    for each statement execute function keep_events()
"""


def upgrade() -> None:
    for statement in (
        _SESSIONS,
        _EVENTS,
        _INBOX,
        _WORKERS,
        _IDEMPOTENCY,
        _SNAPSHOTS,
        _TOOLS,
        _TOOL_HEADS,
        *_INDEXES,
        _KEEP_EVENTS,
        _EVENTS_KEPT,
    ):
        op.execute(statement)


def downgrade() -> None:
    for table in (
        "tool_heads",
        "tools",
        "snapshots",
        "idempotency",
        "workers",
        "inbox",
        "events",
        "sessions",
    ):
        op.execute(f"drop table {table}")
    op.execute("drop function keep_events")
