"""One reader of a session's live events: a bounded queue that drops rather than grows."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from app.runtime.ports.live import LiveEvent

MOST_EVENTS: Final = 512
MOST_BYTES: Final = 4 << 20


class Reader:
    """Receives from the hub, gives to one consumer; None stands for what may have been missed."""

    def __init__(self) -> None:
        """Start with nothing received and nothing missed."""
        self._queue: deque[LiveEvent] = deque()
        self._bytes = 0
        self._missed = False
        self._ready = asyncio.Event()

    def give(self, event: LiveEvent) -> None:
        """Queue an event; when the queue is full, drop all of it and mark the gap."""
        size = len(event.payload)
        if len(self._queue) >= MOST_EVENTS or self._bytes + size > MOST_BYTES:
            self.miss()
            return
        self._queue.append(event)
        self._bytes += size
        self._ready.set()

    def miss(self) -> None:
        """Note that something may have been missed; what is queued is in the journal as well."""
        self._queue.clear()
        self._bytes = 0
        self._missed = True
        self._ready.set()

    async def events(self) -> AsyncIterator[LiveEvent | None]:
        """Yield what comes, for ever."""
        while True:
            await self._ready.wait()
            if self._missed:
                self._missed = False
                yield None
            while self._queue and not self._missed:
                event = self._queue.popleft()
                self._bytes -= len(event.payload)
                yield event
            if not self._queue and not self._missed:
                self._ready.clear()
