"""A connection before there is a request: how much of a head is read, and for how long.

The body is bounded where it is read; the head comes first, from anybody, key or no key. Left
unbounded, one header of 200 MB holds the process for seconds, and with it every session it runs.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.types import Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.wire import problems
from app.api.wire.problems import HttpProblem

MOST_HEAD: Final = 128 * 1024
"""Bytes of a request line with its headers. What came in one read is taken whatever its size."""

HEAD_S: Final = 20.0
"""How long a client may take over a head, counted from the connection or the head's first byte."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 36\r\nconnection: close\r\n\r\n"
    b"The request line or a header is huge"
)


_CROWD: Final = 64
"""So many connections past the bound are told why; any more are closed without a word."""

_PROBES: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell a client that this process has no room for it."""
    detail = (
        "This process has as many connections open as it takes (SUREFOOT_MAX_CONNECTIONS). "
        "Come back later; another process may have room now."
    )
    problem = HttpProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "too-many-connections",
        detail,
        headers={"Retry-After": "2", "Connection": "close"},
    )
    await problems.response(problem, scope["path"])(scope, receive, send)


class BoundedHead(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, closing connections whose head is too large or too slow.

    Past `most_connections` a connection is told so and closed; probes are answered even then, for a
    process that is full is not ill.
    """

    most_connections = 1_000_000
    _crowded = False
    _heading = True
    _headed = False
    _size = 0
    _patience: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._crowded = len(self.connections) > self.most_connections
        if len(self.connections) > self.most_connections + _CROWD:
            transport.abort()
            return
        self._wait()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._headed = False
        super().data_received(data)
        if not self._heading:
            return
        self._size = 0 if self._headed else self._size + len(data)
        if self._size > MOST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._patience is None:
            self._wait()

    @override
    def on_message_begin(self) -> None:
        self._heading = True
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._heading, self._headed, self._size = False, True, 0
        self._stop_waiting()
        if self._crowded and self.url.partition(b"?")[0] not in _PROBES:
            self.app = _too_many
        super().on_headers_complete()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def bounded_door(most: int) -> type[BoundedHead]:
    """Return the protocol of a server that takes so many connections."""

    class Door(BoundedHead):
        most_connections = most

    return Door
