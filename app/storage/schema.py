"""The tables as SQLAlchemy sees them; a test compares them with what the migrations make.

The statements of the hot path are written by hand; this is the map to read beside them, and what
Alembic compares a changed schema with.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

METADATA: Final = MetaData()
_TIME: Final = DateTime(timezone=True)


def _id(name: str, *, primary: bool = False, null: bool = False) -> Column[str]:
    """Return a column of ids, which are compared bytewise."""
    return Column(name, Text(collation="C"), primary_key=primary, nullable=null)


SESSIONS: Final = Table(
    "sessions",
    METADATA,
    _id("id", primary=True),
    _id("tenant"),
    Column("agent", Text, nullable=False),
    Column("agent_version", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("phase", Text),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("stop_reason", Text),
    Column("pending_kind", Text),
    Column("usage", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("tools", ARRAY(Text), nullable=False),
    Column("trace_id", Text, nullable=False),
    _id("parent", null=True),
    Column("created_at", _TIME, nullable=False),
    Column("updated_at", _TIME, nullable=False),
    Column("ended_at", _TIME),
    Column("wake_at", _TIME),
    Column("timer_at", _TIME),
    _id("owner", null=True),
    Column("epoch", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("head_hash", LargeBinary, nullable=False),
    Column("inbox_head", BigInteger, nullable=False),
    Column("inbox_seen", BigInteger, nullable=False),
    Column("claims", Integer, nullable=False),
    Column("min_version", Integer, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("data_key", LargeBinary, nullable=False),
    Column("metadata", LargeBinary),
    Column("view", LargeBinary),
    Column("on_disconnect", Text, nullable=False, server_default="continue"),
    Column("ending", BigInteger),
    postgresql_with={"fillfactor": "70"},
)
Index("sessions_list", SESSIONS.c.tenant, SESSIONS.c.id.desc())
Index(
    "sessions_wake",
    SESSIONS.c.tenant,
    SESSIONS.c.wake_at,
    postgresql_where=text("wake_at is not null"),
)
Index(
    "sessions_pending",
    SESSIONS.c.tenant,
    SESSIONS.c.pending_kind,
    SESSIONS.c.id.desc(),
    postgresql_where=text("pending_kind is not null"),
)
Index("sessions_timer", SESSIONS.c.timer_at, postgresql_where=text("timer_at is not null"))
Index("sessions_ended", SESSIONS.c.ended_at, postgresql_where=text("ended_at is not null"))
Index("sessions_ending", SESSIONS.c.wake_at, postgresql_where=text("ending > inbox_seen"))
Index("sessions_owner", SESSIONS.c.owner, postgresql_where=text("owner is not null"))
Index(
    "sessions_suspect",
    SESSIONS.c.created_at,
    postgresql_where=text(
        "(owner is null and wake_at is null and timer_at is null and (status = 'active'"
        " or inbox_head > inbox_seen or (status = 'waiting' and pending_kind is null)))"
        " or inbox_seen > inbox_head"
    ),
)

EVENTS: Final = Table(
    "events",
    METADATA,
    _id("session_id", primary=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("v", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("phase", Text),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("at", _TIME, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

INBOX: Final = Table(
    "inbox",
    METADATA,
    _id("session_id", primary=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", _TIME, nullable=False),
)
Index(
    "inbox_subject",
    INBOX.c.session_id,
    INBOX.c.kind,
    INBOX.c.subject,
    unique=True,
    postgresql_where=text("subject is not null"),
)
Index("inbox_spoken", INBOX.c.created_at, postgresql_where=text("subject is null"))

WORKERS: Final = Table(
    "workers",
    METADATA,
    _id("id", primary=True),
    Column("lease_until", _TIME, nullable=False),
    Column("started_at", _TIME, nullable=False),
    Column("version", Integer, nullable=False),
)

IDEMPOTENCY: Final = Table(
    "idempotency",
    METADATA,
    _id("tenant", primary=True),
    _id("key", primary=True),
    Column("route", Text, nullable=False),
    Column("body_hash", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    _id("session_id", null=True),
    Column("created_at", _TIME, nullable=False),
    Column("location", Text),
)
Index("idempotency_created", IDEMPOTENCY.c.created_at)
Index(
    "idempotency_session",
    IDEMPOTENCY.c.session_id,
    postgresql_where=text("session_id is not null"),
)

SNAPSHOTS: Final = Table(
    "snapshots",
    METADATA,
    _id("session_id", primary=True),
    Column("seq", BigInteger, nullable=False),
    Column("state_v", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

TOOLS: Final = Table(
    "tools",
    METADATA,
    _id("tenant", primary=True),
    _id("name", primary=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("spec", Text, nullable=False),
    Column("created_at", _TIME, nullable=False),
    Column("min_version", Integer, nullable=False, server_default="1"),
    Column("full_spec", Text),
)

TOOL_HEADS: Final = Table(
    "tool_heads",
    METADATA,
    _id("tenant", primary=True),
    _id("name", primary=True),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
)

SCHEDULES: Final = Table(
    "schedules",
    METADATA,
    _id("id", primary=True),
    _id("tenant"),
    Column("name", Text),
    Column("cron", Text),
    Column("at", _TIME),
    Column("timezone", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("paused", Boolean, nullable=False),
    _id("session_id", null=True),
    Column("content", LargeBinary, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", _TIME, nullable=False),
    Column("updated_at", _TIME, nullable=False),
    Column("next_at", _TIME),
    Column("retry_at", _TIME),
    Column("last_at", _TIME),
    _id("last_session_id", null=True),
    Column("last_error", Text),
)
Index("schedules_list", SCHEDULES.c.tenant, SCHEDULES.c.id.desc())
Index("schedules_next", SCHEDULES.c.next_at, postgresql_where=text("next_at is not null"))

SCHEDULE_RUNS: Final = Table(
    "schedule_runs",
    METADATA,
    Column(
        "schedule_id",
        Text(collation="C"),
        ForeignKey("schedules.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("due_at", _TIME, primary_key=True),
    Column("at", _TIME, nullable=False),
    Column("outcome", Text, nullable=False),
    _id("session_id", null=True),
    Column("error", Text),
    Column("by_hand", Boolean, nullable=False),
)

WEBHOOKS: Final = Table(
    "webhooks",
    METADATA,
    _id("id", primary=True),
    _id("tenant"),
    Column("url", Text, nullable=False),
    Column("events", ARRAY(Text), nullable=False),
    Column("description", Text),
    Column("enabled", Boolean, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("old_secret", LargeBinary),
    Column("old_until", _TIME),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("disabled_reason", Text),
    Column("created_at", _TIME, nullable=False),
    Column("updated_at", _TIME, nullable=False),
)
Index("webhooks_list", WEBHOOKS.c.tenant, WEBHOOKS.c.id.desc())

DELIVERIES: Final = Table(
    "deliveries",
    METADATA,
    _id("id", primary=True),
    _id("webhook_id"),
    _id("tenant"),
    _id("session_id"),
    Column("seq", BigInteger, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", _TIME),
    Column("last_status", Integer),
    Column("last_error", Text),
    Column("created_at", _TIME, nullable=False),
    Column("delivered_at", _TIME),
    postgresql_with={"fillfactor": "80"},
)
Index("deliveries_list", DELIVERIES.c.webhook_id, DELIVERIES.c.id.desc())
Index(
    "deliveries_due",
    DELIVERIES.c.webhook_id,
    DELIVERIES.c.next_at,
    postgresql_where=text("status = 'pending'"),
)
Index("deliveries_done", DELIVERIES.c.created_at, postgresql_where=text("status <> 'pending'"))


def is_ours(name: str | None, kind: str, parent: object) -> bool:
    """Return whether a table is described here; those of the queue are its own library's."""
    del parent
    return kind != "table" or not (name or "").startswith("pgqueuer")
