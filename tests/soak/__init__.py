"""The soak: mixed sessions for minutes, under random kills, with a report."""
