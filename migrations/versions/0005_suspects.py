"""An index of the sessions that nobody would run: always empty, so looking there costs nothing.

Its order is one that no other index has (see `app.storage.audit`). Its condition is made only of
columns that are indexed already or change only together with such, so that a step's update of the
row stays on its page.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "create index sessions_suspect on sessions (created_at) where"
        " (owner is null and wake_at is null and timer_at is null and (status = 'active'"
        " or inbox_head > inbox_seen or (status = 'waiting' and pending_kind is null)))"
        " or inbox_seen > inbox_head"
    )


def downgrade() -> None:
    op.execute("drop index sessions_suspect")
