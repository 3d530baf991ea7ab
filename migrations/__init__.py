"""The schema's history: Alembic revisions, run by `app.storage.migrate`, shipped in the wheel."""
