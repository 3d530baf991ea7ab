"""The write line: what users, callers and people ask of sessions, each a use case."""
