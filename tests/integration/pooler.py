"""A pooler in transaction mode, as PgBouncer is: few connections to Postgres for many clients.

A client has a connection to the server only while its transaction lasts, and each time the one that
was idle for longest: whatever it left on the last one is somewhere else.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

_PLAIN: Final = 196_608
_ENDS: Final = (b"S", b"Q")
_GOODBYE: Final = b"X"
_READY, _IDLE = b"Z", b"I"


@dataclass(slots=True)
class Link:
    """One connection to Postgres, and the client who has it now."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    hello: bytes = b""
    client: asyncio.StreamWriter | None = None
    ready: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def pump(self) -> None:
        """Give the client what Postgres answers; say when it is ready, and in what state."""
        while True:
            kind, content = await _message(self.reader)
            if self.client is not None:
                self.client.write(_packed(kind, content))
            if kind == _READY:
                self.ready.put_nowait(content)


@dataclass(slots=True)
class Pooler:
    """The pooler. `lent` counts how often each connection was lent."""

    user: str
    database: str
    socket: str
    idle: asyncio.Queue[Link] = field(default_factory=asyncio.Queue)
    lent: Counter[int] = field(default_factory=Counter)
    links: list[Link] = field(default_factory=list)

    async def connect(self) -> None:
        """Open one more connection to Postgres."""
        reader, writer = await asyncio.open_unix_connection(f"{self.socket}/.s.PGSQL.5432")
        names = f"user\0{self.user}\0database\0{self.database}\0\0".encode()
        writer.write(struct.pack("!ii", 8 + len(names), _PLAIN) + names)
        link = Link(reader, writer)
        while True:
            kind, content = await _message(reader)
            link.hello += _packed(kind, content)
            if kind == _READY:
                break
        self.links.append(link)
        self.idle.put_nowait(link)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        try:
            await self._greet(reader, writer)
            while await self._transaction(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            await reader.readexactly(size - 8)
            if code == _PLAIN:
                break
            writer.write(b"N")  # neither TLS nor GSS
        writer.write(self.links[0].hello)

    async def _transaction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Carry one transaction; False when the client leaves."""
        kind, content = await _message(reader)
        if kind == _GOODBYE:
            return False
        link = await self.idle.get()
        self.lent[self.links.index(link)] += 1
        link.client = writer
        try:
            while True:
                link.writer.write(_packed(kind, content))
                if kind in _ENDS and await link.ready.get() == _IDLE:
                    return True
                kind, content = await _message(reader)
        finally:
            link.client = None
            self.idle.put_nowait(link)


def _packed(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    (size,) = struct.unpack("!i", await reader.readexactly(4))
    return kind, await reader.readexactly(size - 4)


@asynccontextmanager
async def pooling(dsn: str, size: int = 3) -> AsyncIterator[tuple[str, Pooler]]:
    """Run a pooler before this database; yield its address, and itself."""
    parts = urlsplit(dsn)
    database, socket = parts.path.lstrip("/"), parse_qs(parts.query)["host"][0]
    pooler = Pooler(parts.username or "surefoot", database, socket)
    async with asyncio.TaskGroup() as group:
        for _ in range(size):
            await pooler.connect()
        pumps = [group.create_task(link.pump()) for link in pooler.links]
        server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"postgresql://{pooler.user}@127.0.0.1:{port}/{database}", pooler
        finally:
            server.close()
            for pump in pumps:
                pump.cancel()
            for link in pooler.links:
                link.writer.close()
