"""Redis in memory: the hub between processes, and hot states."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from app.runtime.ports.journal import Snapshot
from app.runtime.ports.live import LiveEvent

MOST_EVENTS = 512


class MemoryHub:
    """A `Hub`. `loses` says which events get lost on the way; `cut` breaks every connection."""

    def __init__(self) -> None:
        self.loses: Callable[[LiveEvent], bool] = lambda _event: False
        self.loses_nudges = False
        self.way_s = 0.0
        self.published: list[LiveEvent] = []
        self._readers: dict[str, list[asyncio.Queue[LiveEvent | None]]] = defaultdict(list)
        self._callbacks: list[Callable[[str], None]] = []
        self._on_rest: list[Callable[[str], None]] = []

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        await asyncio.sleep(self.way_s)
        self.published.extend(events)
        for event in events:
            if not self.loses(event):
                for queue in self._readers[event.session_id]:
                    _give(queue, event)

    def followed(self, session_id: str) -> bool:
        return bool(self._readers[session_id])

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        await asyncio.sleep(self.way_s)
        self._readers[session_id].append(queue)
        live = _items(queue)
        try:
            yield live
        finally:
            self._readers[session_id].remove(queue)
            await live.aclose()

    def cut(self) -> None:
        """Tell every reader that something may have been missed."""
        for queues in self._readers.values():
            for queue in queues:
                queue.put_nowait(None)

    async def readers(self, session_id: str) -> int | None:
        await asyncio.sleep(self.way_s)
        return int(self.followed(session_id))

    async def nudge(self, session_id: str) -> None:
        await asyncio.sleep(self.way_s)
        if not self.loses_nudges:
            for callback in self._callbacks:
                callback(session_id)

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    def rested(self, session_id: str) -> None:
        if not self.loses_nudges:
            for callback in self._on_rest:
                callback(session_id)

    def on_rest(self, callback: Callable[[str], None]) -> None:
        self._on_rest.append(callback)


def _give(queue: asyncio.Queue[LiveEvent | None], event: LiveEvent) -> None:
    """Queue an event; of a reader that is too slow, drop all that waits and mark the gap."""
    if queue.qsize() < MOST_EVENTS:
        queue.put_nowait(event)
        return
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)


async def _items(queue: asyncio.Queue[LiveEvent | None]) -> AsyncGenerator[LiveEvent | None, None]:
    while True:
        yield await queue.get()


class MemoryHot:
    """Hot states."""

    def __init__(self) -> None:
        self.states: dict[str, Snapshot] = {}
        self.reads = 0

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        self.states[session_id] = snapshot

    async def get(self, session_id: str) -> Snapshot | None:
        self.reads += 1
        return self.states.get(session_id)
