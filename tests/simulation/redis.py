"""Redis in the simulation: live events, nudges and hot states between processes, all of it lossy.

A process hears its own events at once, those of others after a while: dropped, doubled, out of
order as the weather has it. While Redis is away nothing passes; afterwards readers are told that
they may have missed something.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.runtime.ports.journal import Snapshot
from app.runtime.ports.live import LiveEvent
from tests.simulation.loop import Process, SeededLoop
from tests.simulation.postgres import OverError
from tests.simulation.weather import Weather

LATE_S = 0.3

Callbacks = list[tuple[Process, Callable[[str], None]]]


@dataclass(eq=False)
class Subscription:
    """One reader's queue."""

    process: Process
    queue: asyncio.Queue[LiveEvent | None]
    attached: bool = True


@dataclass
class Redis:
    """The server, and the wires to it."""

    loop: SeededLoop
    weather: Weather
    up: bool = True
    over: bool = False
    readers: dict[str, list[Subscription]] = field(default_factory=lambda: defaultdict(list))
    nudged: Callbacks = field(default_factory=list)
    resting: Callbacks = field(default_factory=list)
    hot: dict[str, Snapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._here = Process("redis").context

    def later(self, delay_s: float, call: Callable[..., object], *given: object) -> None:
        self.loop.call_later(delay_s, call, *given, context=self._here)

    def go_down(self) -> None:
        """Lose every connection and everything that was kept."""
        self.up = False
        self.hot.clear()

    def come_up(self) -> None:
        """Take the subscriptions again; readers may have missed something."""
        self.up = True
        for subscriptions in self.readers.values():
            for one in subscriptions:
                one.attached = True
                one.queue.put_nowait(None)

    def lose(self, process: Process) -> None:
        """Forget a process that is gone."""
        for callbacks in (self.nudged, self.resting):
            callbacks[:] = [pair for pair in callbacks if pair[0] is not process]
        for subscriptions in self.readers.values():
            subscriptions[:] = [one for one in subscriptions if one.process is not process]

    def carry(self, event: LiveEvent, sender: Process) -> None:
        """Bring an event to the readers of other processes, as the weather lets it."""
        weather = self.weather
        if not self.up or weather.happens(weather.dropped):
            return
        delay_s = weather.latency_s()
        if weather.happens(weather.reordered):
            delay_s += weather.chance.random() * LATE_S
        for _ in range(2 if weather.happens(weather.doubled) else 1):
            self.later(delay_s, self._arrive, event, sender)

    def _arrive(self, event: LiveEvent, sender: Process) -> None:
        if not self.up:
            return
        for one in self.readers[event.session_id]:
            if one.process is not sender and one.attached:
                one.queue.put_nowait(event)

    def nudge(self, session_id: str, sender: Process) -> None:
        """Bring a nudge to the other processes."""
        weather = self.weather
        if self.up and not weather.happens(weather.nudge_lost):
            self.later(weather.latency_s(), self._tell, self.nudged, session_id, sender)

    def rested(self, session_id: str, sender: Process) -> None:
        """Bring word that a session rests to the other processes."""
        weather = self.weather
        if self.up and not weather.happens(weather.dropped):
            self.later(weather.latency_s(), self._tell, self.resting, session_id, sender)

    def _tell(self, whom: Callbacks, session_id: str, sender: Process) -> None:
        for process, callback in whom:
            if process is not sender:
                self.loop.call_soon(callback, session_id, context=process.context)


class HubPort:
    """The `Hub` of one process."""

    def __init__(self, redis: Redis, process: Process) -> None:
        self._redis = redis
        self._process = process

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        self._process.reaches("publish", self._redis.weather.chance)
        await self._hop()
        for event in events:
            for one in self._redis.readers[event.session_id]:
                if one.process is self._process:
                    one.queue.put_nowait(event)
            self._redis.carry(event, self._process)

    def followed(self, session_id: str) -> bool:
        readers = self._redis.readers[session_id]
        return any(one.process is self._process or self._redis.up for one in readers)

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        await self._hop()
        queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        one = Subscription(self._process, queue, attached=self._redis.up)
        self._redis.readers[session_id].append(one)
        try:
            yield _items(queue)
        finally:
            readers = self._redis.readers[session_id]
            if one in readers:
                readers.remove(one)

    async def readers(self, session_id: str) -> int | None:
        await self._hop()
        if not self._redis.up:
            return None
        return len({one.process.name for one in self._redis.readers[session_id]})

    async def nudge(self, session_id: str) -> None:
        for process, callback in list(self._redis.nudged):
            if process is self._process:
                callback(session_id)
        await self._hop()
        self._redis.nudge(session_id, self._process)

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        self._redis.nudged.append((self._process, callback))

    def rested(self, session_id: str) -> None:
        for process, callback in list(self._redis.resting):
            if process is self._process:
                callback(session_id)
        self._redis.rested(session_id, self._process)

    def on_rest(self, callback: Callable[[str], None]) -> None:
        self._redis.resting.append((self._process, callback))

    async def _hop(self) -> None:
        if self._redis.over:
            raise OverError
        await asyncio.sleep(self._redis.weather.latency_s())


async def _items(queue: asyncio.Queue[LiveEvent | None]) -> AsyncGenerator[LiveEvent | None, None]:
    while True:
        yield await queue.get()


class HotPort:
    """The `HotStates` of one process."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        redis = self._redis
        if redis.up and not redis.weather.happens(redis.weather.hot_lost):
            redis.later(redis.weather.latency_s(), self._put, session_id, snapshot)

    def _put(self, session_id: str, snapshot: Snapshot) -> None:
        self._redis.hot[session_id] = snapshot

    async def get(self, session_id: str) -> Snapshot | None:
        if self._redis.over:
            raise OverError
        await asyncio.sleep(self._redis.weather.latency_s())
        return self._redis.hot.get(session_id) if self._redis.up else None
