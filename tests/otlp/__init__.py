"""A real OTLP receiver for tests."""
