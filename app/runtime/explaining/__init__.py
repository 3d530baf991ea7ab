"""Looking into sessions: why they are as they are, and whether every invariant holds."""
