"""Tools that an older release must not carry out: it sees them as disabled.

A process of the release before knows neither approvals nor client tools. It would call without
asking, or fail at a kind it cannot read; and it may run beside this release for as long as an
upgrade takes. So `spec` stays what such a process reads, and `full_spec` is what a release of
`min_version` or later reads.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "alter table tools add column min_version integer not null default 1,"
        " add column full_spec text"
    )


def downgrade() -> None:
    op.execute("alter table tools drop column full_spec, drop column min_version")
