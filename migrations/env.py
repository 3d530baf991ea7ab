"""What Alembic runs: the revisions, inside the transaction that `app.storage.migrate` opened."""

from alembic import context

from app.storage.schema import METADATA, is_ours

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    include_name=is_ours,
)
with context.begin_transaction():
    context.run_migrations()
