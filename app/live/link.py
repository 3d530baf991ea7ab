"""Commands to Redis, bounded in time, cheap when Redis is away, safe to cancel.

A command that is cancelled half-way closes its connection, so that its answer can never be read by
whoever uses the connection next. After a failure the next calls fail at once, without trying, for
a while that doubles.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.runtime.errors import LiveUnavailable
from app.runtime.ports import Clock

FAILURES: Final = (RedisError, OSError, TimeoutError)
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0

Command = tuple[str | bytes | int, ...]


class Link:
    """A small pool of connections to one Redis, with a breaker before it."""

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

    async def __aenter__(self) -> Self:
        """Do nothing: connections are made when needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._redis.aclose()

    @property
    def broken(self) -> bool:
        """Return whether calls fail at once now, because one failed a moment ago."""
        return self.clock.boot_s() < self._closed_until_s

    def mend(self) -> None:
        """Let calls through again: Redis was just seen alive."""
        self._closed_until_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    async def run(self, commands: Sequence[Command]) -> list[object]:
        """Run commands in one round trip and return their answers.

        Raises:
            LiveUnavailable: when Redis did not answer in time, or failed a moment ago.

        """
        if self.broken:
            raise LiveUnavailable("Redis did not answer a moment ago.")
        try:
            async with asyncio.timeout(self.timeout_s):
                pipeline = self._redis.pipeline(transaction=False)
                for command in commands:
                    pipeline.execute_command(*command)
                answers: list[object] = await pipeline.execute()
        except FAILURES as error:
            self._trip()
            raise LiveUnavailable(f"Redis: {type(error).__name__} {error}") from error
        self._pause_s = _FIRST_PAUSE_S
        return answers

    def _trip(self) -> None:
        self._closed_until_s = self.clock.boot_s() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
