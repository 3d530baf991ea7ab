"""Schedules, what came of them, and what retention and erasure look for.

The next firing is a column with an index of its own, so asking what is due costs the same however
many schedules there are. A run belongs to its schedule and goes with it.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SCHEDULES = """
create table schedules (
    id text collate "C" primary key,
    tenant text collate "C" not null,
    name text,
    cron text,
    at timestamptz,
    timezone text not null,
    missed text not null,
    paused boolean not null,
    session_id text collate "C",
    content bytea not null,
    version integer not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    next_at timestamptz,
    retry_at timestamptz,
    last_at timestamptz,
    last_session_id text collate "C",
    last_error text
)
"""

_RUNS = """
create table schedule_runs (
    schedule_id text collate "C" not null references schedules (id) on delete cascade,
    due_at timestamptz not null,
    at timestamptz not null,
    outcome text not null,
    session_id text collate "C",
    error text,
    by_hand boolean not null,
    primary key (schedule_id, due_at)
)
"""

_INDEXES = (
    "create index schedules_list on schedules (tenant, id desc)",
    "create index schedules_next on schedules (next_at) where next_at is not null",
    "create index sessions_ended on sessions (ended_at) where ended_at is not null",
    "create index idempotency_created on idempotency (created_at)",
    ("create index idempotency_session on idempotency (session_id) where session_id is not null"),
    "create index inbox_spoken on inbox (created_at) where subject is null",
)


def upgrade() -> None:
    for statement in (_SCHEDULES, _RUNS, *_INDEXES):
        op.execute(statement)


def downgrade() -> None:
    for index in ("inbox_spoken", "idempotency_session", "idempotency_created", "sessions_ended"):
        op.execute(f"drop index {index}")
    for table in ("schedule_runs", "schedules"):
        op.execute(f"drop table {table}")
