"""Protective mechanisms taken out, one at a time, to see that a test misses each of them."""

from collections.abc import Callable


def take_out(mechanism: str) -> None:
    """Run this process without one mechanism."""
    MECHANISMS[mechanism]()


MECHANISMS: dict[str, Callable[[], None]] = {}
