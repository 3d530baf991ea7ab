"""Commands to Redis, gathered, bounded in time, cheap when Redis is away, safe to cancel.

One task sends what all callers want in one pipeline, while the next gathers; so a caller that is
cancelled leaves no half-read answer behind for whoever uses the connection next. After a failure
the next calls fail at once, without trying, for a while that doubles.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.runtime.errors import LiveUnavailable
from app.runtime.ports.process import Clock

FAILURES: Final = (RedisError, OSError, TimeoutError)
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0

_MOST_COMMANDS: Final = 512
_MOST_WAITING: Final = 8192

Command = tuple[str | bytes | int, ...]
_Answers = asyncio.Future[list[object]]


class Link:
    """The commands of this process to one Redis, with a breaker before them.

    Used as a context manager: its sending task runs inside.
    """

    def __init__(
        self, url: str, *, clock: Clock, timeout_s: float = 1.0, connections: int = 8
    ) -> None:
        """Open nothing yet. `timeout_s` bounds a call from end to end."""
        self.url = url
        self.clock = clock
        self.timeout_s = timeout_s
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=timeout_s,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=None,
        )
        self._redis = Redis.from_pool(pool)
        self._pause_s = _FIRST_PAUSE_S
        self._closed_until_s = 0.0
        self._reached = False
        self._waiting: deque[tuple[Sequence[Command], _Answers | None]] = deque()
        self._something = asyncio.Event()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        """Start sending; connections are made when needed."""
        await self._group.__aenter__()
        self._sending = self._group.create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop sending and close the connections."""
        self._sending.cancel()
        await self._group.__aexit__(None, None, None)
        await self._redis.aclose()

    @property
    def broken(self) -> bool:
        """Return whether calls fail at once now, because one failed a moment ago."""
        return self.clock.boot_s() < self._closed_until_s

    @property
    def reached(self) -> bool:
        """Return whether Redis has answered this process at all."""
        return self._reached

    def mend(self) -> None:
        """Let calls through again: Redis was just seen alive."""
        self._closed_until_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    async def run(self, commands: Sequence[Command]) -> list[object]:
        """Run commands and return their answers.

        Raises:
            LiveUnavailable: when Redis did not answer in time, or failed a moment ago.

        """
        if self.broken:
            raise LiveUnavailable("Redis did not answer a moment ago.")
        answers: _Answers = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, answers))
        self._something.set()
        return await answers

    def post(self, commands: Sequence[Command]) -> None:
        """Send commands whose answers nobody waits for; drop them when Redis is away or behind."""
        if not self.broken and len(self._waiting) < _MOST_WAITING:
            self._waiting.append((commands, None))
            self._something.set()

    async def _send_all(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                await self._send(self._take())

    def _take(self) -> list[tuple[Sequence[Command], _Answers | None]]:
        """Return the next batch, in the order in which it was asked for."""
        batch: list[tuple[Sequence[Command], _Answers | None]] = []
        size = 0
        while self._waiting and size < _MOST_COMMANDS:
            commands, answers = self._waiting.popleft()
            if answers is None or not answers.cancelled():
                batch.append((commands, answers))
                size += len(commands)
        return batch

    async def _send(self, batch: Sequence[tuple[Sequence[Command], _Answers | None]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for commands, _ in batch:
            for command in commands:
                pipeline.execute_command(*command)
        try:
            async with asyncio.timeout(self.timeout_s):
                found: list[object] = await pipeline.execute(raise_on_error=False)
        except FAILURES as error:
            self._trip()
            for _, answers in batch:
                _fail(answers, error)
            return
        self._reached = True
        self._pause_s = _FIRST_PAUSE_S
        at = 0
        for commands, answers in batch:
            _settle(answers, found[at : at + len(commands)])
            at += len(commands)

    def _trip(self) -> None:
        self._closed_until_s = self.clock.boot_s() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)


def _settle(answers: _Answers | None, found: list[object]) -> None:
    if answers is None or answers.done():
        return
    error = next((one for one in found if isinstance(one, Exception)), None)
    if error is None:
        answers.set_result(found)
    else:
        _fail(answers, error)


def _fail(answers: _Answers | None, error: Exception) -> None:
    if answers is not None and not answers.done():
        answers.set_exception(LiveUnavailable(f"Redis: {type(error).__name__} {error}"))
