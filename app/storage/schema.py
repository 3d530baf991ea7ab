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
Index("sessions_owner", SESSIONS.c.owner, postgresql_where=text("owner is not null"))

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
)

TOOL_HEADS: Final = Table(
    "tool_heads",
    METADATA,
    _id("tenant", primary=True),
    _id("name", primary=True),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
)
