"""The run line: who runs a session, and how: claim, fold, decide, append, perform."""
