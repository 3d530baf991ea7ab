"""What becomes of a session when its last reader has left; where a remembered answer points to.

Both columns may be missing from what older processes write.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table sessions add column on_disconnect text not null default 'continue'")
    op.execute("alter table idempotency add column location text")


def downgrade() -> None:
    op.execute("alter table idempotency drop column location")
    op.execute("alter table sessions drop column on_disconnect")
