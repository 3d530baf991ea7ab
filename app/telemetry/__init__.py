"""What can be seen from outside: spans, metrics and log lines, all projected from committed events.

Nothing here decides anything, and nothing here may slow or fail a session.
"""
