"""Which sessions were asked to end and have not been told yet: they are claimed beyond the slots.

What an older process puts into an inbox is not marked: it waits for a slot, as it did before. The
index is empty but for the moment between a request and its owner; its condition names only columns
that are indexed already or change together with such.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table sessions add column ending bigint")
    op.execute("create index sessions_ending on sessions (wake_at) where ending > inbox_seen")


def downgrade() -> None:
    op.execute("drop index sessions_ending")
    op.execute("alter table sessions drop column ending")
