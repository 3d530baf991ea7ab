"""An event loop on virtual time: when everything waits, the time is that of the next timer.

So a test of leases and timeouts takes no time, and two runs of it do the same in the same order.
"""

import asyncio
import selectors
from collections.abc import Mapping

from typing_extensions import override

LONGEST_S = 5_000.0


class StalledError(Exception):
    """Nothing will ever happen again: every task waits for another."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting for as long as the loop says, moves the loop's time by it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or self.now_s > LONGEST_S:
            raise StalledError(f"At {self.now_s} s every task waits for another.")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` starts at nought and never waits."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        return self._virtual.now_s


def loop_factories() -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    """Return what a conftest gives to pytest-asyncio so that its tests run on virtual time."""
    return {"virtual": VirtualLoop}
