"""Postgres: the journal, sessions as rows, inboxes, leases, tools; the only truth."""
