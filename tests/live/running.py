"""Hubs that run, and a proxy before Redis that delays, cuts and refuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from app.live.hub import RedisHub
from app.live.link import Link
from app.runtime.ports.process import Clock
from tests.clocks import RealClock
from tests.waiting import until


@asynccontextmanager
async def running_hub(
    url: str,
    fallback: Callable[[str], Awaitable[None]] | None = None,
    *,
    wait: bool = True,
    clock: Clock | None = None,
    on_rest: Callable[[str], None] | None = None,
) -> AsyncIterator[RedisHub]:
    async with Link(url, clock=clock or RealClock()) as link, asyncio.TaskGroup() as group:
        hub = RedisHub(link, nudge_fallback=fallback)
        if on_rest is not None:
            hub.on_rest(on_rest)
        running = group.create_task(hub.run())
        if wait:
            await until(lambda: hub.connected)
        yield hub
        running.cancel()


class Proxy:
    """Stands before Redis on a port of its own."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.delay_s = 0.0
        self.delay_in_s = 0.0
        self.bytes_in = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut those there are."""
        if self._server:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = await self._connect()
        self._writers |= {writer, back[1]}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back[1], inwards=True))
                group.create_task(self._pump(back[0], writer, inwards=False))
        finally:
            self._writers -= {writer, back[1]}
            for each in (writer, back[1]):
                each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        target = self._target
        if target.scheme == "unix":
            return await asyncio.open_unix_connection(target.path)
        return await asyncio.open_connection(target.hostname, target.port)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, inwards: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                self.bytes_in += len(data) if inwards else 0
                await asyncio.sleep(self.delay_in_s if inwards else self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(url)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
