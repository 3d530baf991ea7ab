"""What the runtime needs of the outside: a page for each subject, with the values that cross it.

One suite in tests/conformance runs on each fake and its adapter. Times are microseconds since the
epoch, UTC, and come from Postgres's clock where a lease or a wake-up depends on them.
"""
