"""Nudges over Postgres, for when Redis is away: LISTEN on a connection of its own, NOTIFY."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import asyncpg

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.process import Clock
from app.storage.engine import Engine, translated

CHANNEL: Final = "surefoot_wake"
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_ALIVE_EVERY_S: Final = 5.0


async def notify(engine: Engine, session_id: str) -> None:
    """Tell every process that listens that a session has become due."""
    await engine.run(f"select pg_notify('{CHANNEL}', $1)", session_id)


class Listener:
    """Calls back for each notification. `run` must be running; it reconnects by itself.

    The address must lead to Postgres itself: a pooler in transaction mode does not pass on
    notifications.
    """

    def __init__(self, dsn: str, callback: Callable[[str], None], *, clock: Clock) -> None:
        """Connect when `run` runs."""
        self._dsn = dsn
        self._callback = callback
        self._clock = clock
        self._pause_s = _FIRST_PAUSE_S
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Listen, for ever."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self._listen()
            await self._clock.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    async def _listen(self) -> None:
        with translated():
            connection = await asyncpg.connect(
                self._dsn, timeout=_ALIVE_EVERY_S, command_timeout=_ALIVE_EVERY_S
            )
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            with translated():
                await connection.add_listener(CHANNEL, self._heard)
                self._pause_s = _FIRST_PAUSE_S
                self.listening.set()
                while not lost.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_ALIVE_EVERY_S):
                            await lost.wait()
                    # A connection whose other end vanished is noticed only by using it.
                    await connection.execute("select 1")
        finally:
            self.listening.clear()
            connection.terminate()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._callback(str(payload))
