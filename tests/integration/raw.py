"""Readers of streams on bare sockets: a thousand of them cost a test little."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

FILES = 8192


def many_files() -> None:
    """Let this process hold thousands of sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(slots=True)
class RawReader:
    """One connection that reads a stream; `seqs` are the ids that came."""

    status: int = 0
    seqs: list[int] = field(default_factory=list)
    last: str = ""
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def open(self, url: str, path: str) -> None:
        """Connect and return when the head of the answer is there."""
        parts = urlsplit(url)
        self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        self.status = int((await self._reader.readline()).split()[1])
        while await self._reader.readline() not in {b"\r\n", b""}:
            pass

    async def read(self, until: str) -> None:
        """Read events until one of this type has come."""
        assert self._reader is not None
        async for line in self._reader:
            name, _, value = line.decode().rstrip().partition(": ")
            if name == "id":
                self.seqs.append(int(value))
            elif name == "event":
                self.last = value
            elif name == "data" and self.last == until:
                return

    async def body(self) -> Any:
        """Return the JSON of an answer that is no stream."""
        assert self._reader is not None
        return json.loads(await self._reader.readline() or b"null")

    def close(self) -> None:
        """Go away without a word."""
        if self._writer is not None:
            self._writer.transport.abort()


@asynccontextmanager
async def idle_connections(url: str, count: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Hold so many connections that ask for nothing."""
    parts = urlsplit(url)
    writers = [(await asyncio.open_connection(parts.hostname, parts.port))[1] for _ in range(count)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()
