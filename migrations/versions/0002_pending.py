"""An index over the sessions that wait for a person, by what they wait for.

Sessions that wait for nobody are not in it, so the updates of running ones do not touch it.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "create index sessions_pending on sessions (tenant, pending_kind, id desc)"
        " where pending_kind is not null"
    )


def downgrade() -> None:
    op.execute("drop index sessions_pending")
