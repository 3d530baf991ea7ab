"""What crosses the wire to Postgres and Redis, counted: a proxy for the one, MONITOR for the other.

    async with counted_postgres(dsn) as counts:    # counts.dsn leads through the proxy
        ...
        counts.statements                          # Executed(sql, tag, connection) as they came

The proxy speaks no SQL; it reads the frames of the protocol and passes every byte on.
"""

import asyncio
import re
import shlex
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from redis.asyncio import Redis

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Executed:
    """One statement that Postgres has carried out, with the tag of its completion."""

    sql: str
    tag: str


@dataclass(slots=True)
class PostgresCounts:
    """What went through the proxy so far."""

    dsn: str
    statements: list[Executed] = field(default_factory=list)


class _Conversation:
    """One connection: requests in order, each answered by a CommandComplete or an error."""

    def __init__(self, counts: PostgresCounts) -> None:
        self._counts = counts
        self._prepared: dict[bytes, str] = {}
        self._bound: dict[bytes, str] = {}
        self._running: deque[str] = deque()

    def asked(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._prepared[name] = sql.decode()
            case b"B":
                portal, name, _ = body.split(b"\0", 2)
                self._bound[portal] = self._prepared[name]
            case b"E":
                self._running.append(self._bound[body.split(b"\0", 1)[0]])
            case b"Q":
                self._running.append(body.rstrip(b"\0").decode())
            case _:
                pass

    def answered(self, kind: bytes, body: bytes) -> None:
        if kind in {b"C", b"s"} and self._running:  # complete, or stopped at the rows it may give
            sql = self._running.popleft()
            self._counts.statements.append(Executed(sql, body.rstrip(b"\0").decode()))
        elif kind == b"E" and self._running:
            self._running.popleft()


async def _pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    conversation: _Conversation,
    *,
    client: bool,
) -> None:
    """Pass bytes on, reading the frames in them; a client's first frame has no type."""
    buffer = b""
    started = not client
    while data := await reader.read(_CHUNK):
        buffer += data
        while len(buffer) >= 5:
            at = 1 if started else 0
            size = at + int.from_bytes(buffer[at : at + 4])
            if len(buffer) < size:
                break
            kind, body = buffer[:at], buffer[at + 4 : size]
            buffer = buffer[size:]
            if started:
                (conversation.asked if client else conversation.answered)(kind, body)
            started = True
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def counted_postgres(dsn: str) -> AsyncIterator[PostgresCounts]:
    """Run the proxy before the server that a DSN names by the folder of its socket."""
    parts = urlsplit(dsn)
    target = parse_qs(parts.query)["host"][0]
    with tempfile.TemporaryDirectory(prefix="surefoot-proxy-") as folder:
        counts = PostgresCounts(parts._replace(query=f"host={quote(folder)}").geturl())
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with suppress(OSError):
                inner, outer = await asyncio.open_unix_connection(f"{target}/{_SOCKET}")
                writers.append(outer)
                conversation = _Conversation(counts)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pass_on(reader, outer, conversation, client=True))
                    group.create_task(_pass_on(inner, writer, conversation, client=False))

        server = await asyncio.start_unix_server(serve, str(Path(folder) / _SOCKET))
        try:
            yield counts
        finally:
            server.close()
            for writer in writers:  # a process that was killed may not have closed its end yet
                writer.close()


@dataclass(slots=True)
class RedisCounts:
    """The commands that Redis got, as words."""

    commands: list[list[str]] = field(default_factory=list)


@asynccontextmanager
async def counted_redis(url: str) -> AsyncIterator[RedisCounts]:
    """Read MONITOR on a connection of its own; entered once it is on, left once it has all."""
    counts = RedisCounts()
    path = url.removeprefix("unix://")
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_monitor(reader, counts))
        try:
            yield counts
        finally:
            async with Redis.from_url(url) as redis:
                await redis.echo("the end")
            await reading
            writer.close()


async def _monitor(reader: asyncio.StreamReader, counts: RedisCounts) -> None:
    while line := await reader.readline():
        words = shlex.split(re.sub(r"^\+\S+ \[[^]]*\] ", "", line.decode(errors="replace").strip()))
        if words[:1] == ["ECHO"]:
            return
        counts.commands.append(words)
