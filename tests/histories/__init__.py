"""Random histories: a stateful test over the HTTP API of real processes."""
