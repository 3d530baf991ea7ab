"""Rules about the code itself, kept by tests."""
