"""The fixtures of tests with real processes."""

from tests.integration.conftest import nursery, stacks

__all__ = ["nursery", "stacks"]
