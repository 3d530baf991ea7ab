"""A reader that stays with a session from turn to turn, and leaves a process that is silent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2

from tests.integration.client import Client, Frame, Json

PING_S = 1
PATIENCE_S = 3.5
"""After so long without a sign of life a connection is given up."""
AGAIN_S = 0.05
Pause = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Listener:
    """Reads one session until it is closed, coming back with its last id.

    `urls` is asked at each connection: where to try, in turn. `pause` is awaited after each frame,
    and may raise `Hangup` to break the connection off.
    """

    session_id: str
    urls: Callable[[], list[str]]
    pause: Pause | None = None
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def durable(self) -> list[tuple[int | None, Json]]:
        """Return what has an id."""
        return [(f.seq, f.data) for f in self.frames if f.seq is not None]

    @property
    def last_id(self) -> int | None:
        """Return the last id that was seen."""
        return max((f.seq for f in self.frames if f.seq is not None), default=None)

    @property
    def over(self) -> bool:
        """Return whether the end of the session was seen."""
        return any(f.type == "session.closed" for f in self.frames)

    async def run(self) -> None:
        """Return when the session is closed and all of it was read."""
        while not self.over:
            for url in self.urls():
                if await self._read(url):
                    return
            await asyncio.sleep(AGAIN_S)

    async def _read(self, url: str) -> bool:
        client = Client(url)
        headers = {} if self.last_id is None else {"Last-Event-ID": str(self.last_id)}
        path = f"/v1/sessions/{self.session_id}/stream?follow=session"
        patience = httpx2.Timeout(PATIENCE_S)
        try:
            async with client.http.stream("GET", path, headers=headers, timeout=patience) as r:
                if r.status_code == httpx2.codes.NO_CONTENT:
                    return True
                if r.status_code == httpx2.codes.OK:
                    self.connections += 1
                    await self._take(r)
                elif r.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
                    self.faults.append(f"the stream answered {r.status_code}")
        except (httpx2.TransportError, Hangup):
            pass
        finally:
            await client.close()
        return self.over

    async def _take(self, response: httpx2.Response) -> None:
        async for frame in Client.frames(response):
            self.frames.append(frame)
            if self.pause is not None:
                await self.pause()


class Hangup(Exception):  # noqa: N818 - the reader's wish, not an error
    """The reader breaks the connection off."""
