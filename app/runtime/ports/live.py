"""The live side, in Redis: fan-out to readers, and folded states. Losing it costs time only."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from app.runtime.ports.journal import Snapshot


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """What a hub passes on: a sealed event (`seq`), or a sealed delta without one."""

    session_id: str
    seq: int | None
    payload: bytes
    type: str = ""


class Hub(Protocol):
    """Live fan-out between processes. Losing it costs time, never an event."""

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        """Pass these on to whoever follows; drop them silently when the hub is away."""

    def followed(self, session_id: str) -> bool:
        """Return whether some process has a reader on this session."""

    def subscribe(
        self, session_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent | None]]:
        """Follow a session; entered only once the subscription is confirmed (or impossible).

        Yields None when something may have been missed (a lost connection, an overflow).
        """

    async def readers(self, session_id: str) -> int | None:
        """Return how many processes have readers on this session; None when nobody can tell."""

    async def nudge(self, session_id: str) -> None:
        """Tell workers that a session has become due or got a message."""

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        """Call back for each nudge."""

    def rested(self, session_id: str) -> None:
        """Tell every process that a session has come to rest, or a turn of it to its end.

        Dropped when the hub is away.
        """

    def on_rest(self, callback: Callable[[str], None]) -> None:
        """Call back each time that is told of a session."""


class HotStates(Protocol):
    """Folded states in Redis, sealed, for a quick resume."""

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a state; silently not, when Redis is away."""

    async def get(self, session_id: str) -> Snapshot | None:
        """Return the state, or None."""
