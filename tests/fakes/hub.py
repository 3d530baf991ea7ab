"""The hub in memory: several hubs on one bus are several processes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.runtime.exchange import LiveEvent

MOST_EVENTS = 512


@dataclass(slots=True)
class Bus:
    """What the hubs of all processes share."""

    readers: dict[str, list["MemoryReader"]] = field(default_factory=lambda: defaultdict(list))
    callbacks: list[Callable[[str], None]] = field(default_factory=list)

    def lose(self) -> None:
        """Behave as if the connection was lost and came back."""
        for readers in self.readers.values():
            for reader in readers:
                reader.overflow()


class MemoryReader:
    def __init__(self) -> None:
        self._queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()

    def give(self, event: LiveEvent) -> None:
        if self._queue.qsize() >= MOST_EVENTS:
            self.overflow()
        else:
            self._queue.put_nowait(event)

    def overflow(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def events(self) -> AsyncIterator[LiveEvent | None]:
        while True:
            yield await self._queue.get()


class MemoryHub:
    """A `Hub` without Redis."""

    def __init__(self, bus: Bus | None = None) -> None:
        self._bus = bus or Bus()

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        for event in events:
            for reader in self._bus.readers.get(event.session_id, ()):
                reader.give(event)

    def followed(self, session_id: str) -> bool:
        return bool(self._bus.readers.get(session_id))

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        reader = MemoryReader()
        self._bus.readers[session_id].append(reader)
        try:
            yield reader.events()
        finally:
            self._bus.readers[session_id].remove(reader)

    async def nudge(self, session_id: str) -> None:
        for callback in self._bus.callbacks:
            callback(session_id)

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        self._bus.callbacks.append(callback)
