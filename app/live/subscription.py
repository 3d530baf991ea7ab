"""The one subscription connection of a process: it reconnects by itself and tells of it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.live.link import FAILURES, Link

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_SILENCE_S: Final = 12.0


class Listener(Protocol):
    """Who is told what the subscription hears."""

    def heard(self, channel: str, data: bytes) -> None:
        """Take a message."""

    def reconnected(self) -> None:
        """Take note that messages may have been missed; all channels are subscribed again."""


class Subscription:
    """Channels over one connection. `run` must be running."""

    def __init__(self, link: Link, listener: Listener, channels: Iterable[str]) -> None:
        """Begin with the channels that are never left."""
        self._link = link
        self._listener = listener
        self._channels = set(channels)
        self._pool = ConnectionPool.from_url(
            link.url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=link.timeout_s,
        )
        self._connection: Connection | None = None
        self._pending: Counter[str] = Counter()
        self._waiters: dict[str, asyncio.Event] = {}
        self._joining: set[str] = set()
        self._heard_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    @property
    def connected(self) -> bool:
        """Return whether messages of every channel arrive now."""
        return self._connection is not None and not self._joining

    def keep(self, channel: str) -> None:
        """Count a channel among those that are never left, from the next connection on."""
        self._channels.add(channel)

    async def add(self, channel: str) -> None:
        """Subscribe; return when it is confirmed, or can't be now (it will be on reconnecting)."""
        new = channel not in self._channels
        self._channels.add(channel)
        if self._connection is None:
            return
        if new:
            self._pending[channel] += 1
            await self._send("SUBSCRIBE", channel)
        if self._pending[channel] > 0:
            confirmed = self._waiters.setdefault(channel, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._link.timeout_s):
                    await confirmed.wait()

    async def drop(self, channel: str) -> None:
        """Unsubscribe."""
        self._channels.discard(channel)
        await self._send("UNSUBSCRIBE", channel)

    async def check(self) -> None:
        """Ask for a sign of life; cut a connection that has given none for long."""
        connection = self._connection
        if connection is None:
            return
        if self._link.clock.boot_s() - self._heard_s > _SILENCE_S:
            await connection.disconnect(nowait=True)
        else:
            await self._send("PING")

    async def _send(self, *command: str) -> None:
        connection = self._connection
        # A closed connection would be opened again by sending, without its channels.
        if connection is None or not connection.is_connected:
            return
        with contextlib.suppress(*FAILURES):
            await connection.send_command(*command, check_health=False)

    async def run(self) -> None:
        """Keep the connection, for ever."""
        while True:
            with contextlib.suppress(*FAILURES):
                await self._listen()
            await self._link.clock.sleep(self._pause_s * (0.5 + self._link.clock.jitter() / 2))
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    async def _listen(self) -> None:
        connection: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            # Its own timeout bounds the socket, not the greeting that follows.
            async with asyncio.timeout(self._link.timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
            self._joining = set(self._channels)
            self._pending = Counter(self._joining)
            await connection.send_command("SUBSCRIBE", *self._joining, check_health=False)
            self._heard_s = self._link.clock.boot_s()
            self._connection = connection
            while True:
                answer: object = await connection.read_response(disable_decoding=True)
                self._heard_s = self._link.clock.boot_s()
                self._take(answer)
        finally:
            self._connection = None
            self._pending.clear()
            self._release_waiters()
            await connection.disconnect(nowait=True)

    def _release_waiters(self) -> None:
        for waiter in self._waiters.values():
            waiter.set()
        self._waiters.clear()

    def _take(self, answer: object) -> None:
        match answer:
            case [b"message", bytes(channel), bytes(data)]:
                self._listener.heard(channel.decode(), data)
            case [b"subscribe", bytes(channel), _]:
                self._confirm(channel.decode())
            case _:
                pass  # a pong, or that a channel was left

    def _confirm(self, channel: str) -> None:
        """Count a confirmation; a channel left and joined again has more than one to come."""
        self._pending[channel] -= 1
        if self._pending[channel] <= 0:
            del self._pending[channel]
            waiter = self._waiters.pop(channel, None)
            if waiter:
                waiter.set()
        if channel in self._joining:
            self._joining.discard(channel)
            if not self._joining:
                self._pause_s = _FIRST_PAUSE_S
                self._link.mend()
                self._listener.reconnected()
