"""A very small HTTP/1.1 server whose answers are steps: bytes, and points where it stops.

No task and no sleep per request: a connection walks through its steps by callbacks, so holding,
delaying, cutting and hanging cost nothing, and a benchmark measures the service instead of this.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self, cast

from typing_extensions import override

REASONS = {200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 404: "Not Found"}
MOST_HEADER_BYTES = 64 * 1024


class Hold:
    """A point where an answer stops until a test releases it (all at it, and all that follow)."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._released = False
        self._reached = asyncio.Event()

    def release(self) -> None:
        """Let everything go on."""
        self._released = True
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    async def reached(self) -> None:
        """Return once an answer has come this far."""
        await self._reached.wait()

    @property
    def holding(self) -> bool:
        """Return whether it has stopped an answer and was not released."""
        return not self._released and bool(self._waiting)

    def leave(self, go_on: Callable[[], None]) -> None:
        """Forget an answer that nobody waits for any more."""
        self._waiting = [one for one in self._waiting if one != go_on]

    def pass_or_wait(self, go_on: Callable[[], None]) -> bool:
        """Return whether it is open; else call back when it is."""
        self._reached.set()
        if not self._released:
            self._waiting.append(go_on)
        return self._released


@dataclass(frozen=True, slots=True)
class Delay:
    """A pause; 0 only lets the other side read what was written so far."""

    seconds: float = 0.0


class End(Enum):
    """Ways to stop in the middle."""

    CUT = "cut"
    HANG = "hang"
    CLOSE = "close"


Step = bytes | Hold | Delay | End


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Handler = Callable[[Request], Iterable[Step]]


def response(
    status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> bytes:
    """Return a whole answer with its length."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    reason = REASONS.get(status, "Status")
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n{extra}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Connection(asyncio.Protocol):
    def __init__(self, server: "Server") -> None:
        self._server = server
        self._buffer = bytearray()
        self._steps: Iterator[Step] | None = None
        self._hold: Hold | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        self._server.accepted += 1

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.connections.discard(self)
        if self._hold is not None:
            self._hold.leave(self._go_on)
        if self._steps is not None:
            self._steps = None
            self._server.dropped.set()

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._steps is None:
            self._next_request()

    def abort(self) -> None:
        self._steps = None
        self._transport.abort()

    def _next_request(self) -> None:
        request = self._parse()
        if request is not None:
            self._steps = iter(self._server.handler(request))
            self._go_on()

    def _parse(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEADER_BYTES:
                self.abort()
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        start = end + 4
        stop = start + int(headers.get("content-length", "0"))
        if len(self._buffer) < stop:
            return None
        body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        return Request(method, path, headers, body)

    def _go_on(self) -> None:
        while self._steps is not None:
            step = next(self._steps, None)
            if step is None:
                self._steps = None
                self._next_request()
            elif isinstance(step, bytes):
                self._transport.write(step)
            elif not self._passes(step):
                return

    def _passes(self, step: Hold | Delay | End) -> bool:
        match step:
            case Hold():
                self._hold = step
                return step.pass_or_wait(self._go_on)
            case Delay(seconds):
                asyncio.get_running_loop().call_later(seconds, self._go_on)
            case End.CUT:
                self.abort()
            case End.CLOSE:
                self._steps = None
                self._transport.close()
            case End.HANG:
                pass
        return False


class Server:
    """Serves a handler on a free port of 127.0.0.1 while its `async with` block runs."""

    def __init__(self, handler: Handler, *, port: int = 0) -> None:
        self.handler = handler
        self.connections: set[_Connection] = set()
        self.accepted = 0
        self.dropped = asyncio.Event()
        """Set once a client went away in the middle of an answer."""
        self._port = port
        self._server: asyncio.Server | None = None

    @property
    def root(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port, once it runs."""
        return self._port

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.abort()
