"""The read line: a session's events to its readers, durable ones and live deltas."""
