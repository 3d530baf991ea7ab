"""A closed loop of load, and what it tells its parent: one line at the window's begin and end.

N workers each start a session when their last one has ended. The window opens at the first
completion after the warm-up and closes at the first one after its length, so that a handful of long
sessions is counted without a remainder. What is in flight then is let finish.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

MOST_ERRORS = 5


@dataclass(frozen=True)
class Sample:
    """One session that was done and verified."""

    seconds: float
    first_event_s: float


@dataclass
class Window:
    """What the parent gets at the end."""

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    first_events_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class ClosedLoop:
    """Runs `session` in `inflight` workers for the warm-up and the window."""

    def __init__(
        self,
        session: Callable[[], Awaitable[Sample]],
        *,
        inflight: int,
        warmup_s: float,
        seconds: float,
    ) -> None:
        """Nothing runs yet."""
        self._session = session
        self._inflight = inflight
        self._seconds = seconds
        self._opens = time.perf_counter() + warmup_s
        self._opened: float | None = None
        self._closed = False
        self.window = Window()

    async def run(self) -> None:
        """Run to the end of the window, and of every session begun in it."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._inflight):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while not self._closed:
            try:
                sample = await self._session()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told
                self._fail(error)
            else:
                self._take(sample)

    def _fail(self, error: Exception) -> None:
        self.window.errors.append(f"{type(error).__name__}: {error}")
        if len(self.window.errors) >= MOST_ERRORS:
            self._close(time.perf_counter())

    def _take(self, sample: Sample) -> None:
        now = time.perf_counter()
        if self._closed or now < self._opens:
            return
        if self._opened is None:
            self._opened = now
            say({"event": "begin"})
            return
        self.window.latencies_ms.append(sample.seconds * 1000)
        self.window.first_events_ms.append(sample.first_event_s * 1000)
        if now - self._opened >= self._seconds:
            self._close(now)

    def _close(self, now: float) -> None:
        if not self._closed:
            self._closed = True
            self.window.seconds = now - (self._opened or now)
            say({"event": "end"})

    def tell(self) -> None:
        """Give the parent what was measured."""
        say({"event": "result", **asdict(self.window)})


def say(message: dict[str, object]) -> None:
    """Write a line to the parent."""
    print(json.dumps(message), flush=True)
