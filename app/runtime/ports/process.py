"""What a process itself gives: time, chance, and somebody who watches."""

from collections.abc import Sequence
from typing import Protocol

from app.core.events import Event
from app.core.state import State


class Clock(Protocol):
    """The only source of time, chance and sleep."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""

    def boot_s(self) -> float:
        """Return seconds on a clock which also runs while the process or machine is stopped."""

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""

    async def sleep(self, seconds: float) -> None:
        """Return after this long."""


class Observer(Protocol):
    """Is told of everything that was committed; spans, metrics and log lines are its business."""

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Take note of events that are durable now."""

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Take note of the open turn's events again, after a takeover: their spans may be lost."""

    def traceparent(self, state: State, effect_key: str) -> str:
        """Return the W3C trace context for a request that this effect makes."""

    def log(self, event: str, **fields: object) -> None:
        """Write one structured log line."""
