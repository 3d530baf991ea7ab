"""The outermost layer: who may come in, what an error looks like, and one log line a request."""

import hmac
import traceback
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.deps import ApiServices
from app.api.wire import problems
from app.api.wire.problems import HttpProblem
from app.api.wire.routing import Api, DirectRoute

OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"})
"""Paths that need no key: they show nothing of anybody."""

_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_SERVER_ERROR: Final = 500
_GONE: Final = 499
"""The status in the log of a request whose client went away, as proxies write it."""


class _Sent:
    """Passes an answer on, to a HEAD without its body, and remembers how far it got."""

    def __init__(self, send: Send, *, bare: bool) -> None:
        self._send = send
        self._bare = bare
        self.status = 0
        self.streaming = False
        self.finished = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.streaming = bool(message.get("more_body"))
            self.finished = not self.streaming
            if self._bare:
                message = {**message, "body": b""}
        await self._send(message)


class Edge:
    """Serves HTTP; everything that goes wrong inside comes out as a problem document."""

    def __init__(self, api: Api, services: ApiServices) -> None:
        """Stand before the routes of this API."""
        self._api = api
        self._router: ASGIApp = api.router
        self._services = services
        key = services.auth.admin_key
        self._expected = None if not key else b"Bearer " + key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; other kinds of connections go to the router as they are."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        began_s = self._services.clock.boot_s()
        sent = _Sent(send, bare=scope["method"] == "HEAD")
        try:
            await self._serve(scope, receive, sent)
        except ClientDisconnect:
            sent.status = _GONE
        except Exception as error:  # noqa: BLE001 - whatever happens, the client gets a problem
            await self._answer(error, scope, receive, sent)
        self._log(scope, sent, began_s)

    async def _serve(self, scope: Scope, receive: Receive, sent: _Sent) -> None:
        scope["app"] = self._api
        if self._services.auth.required and scope["path"] not in OPEN:
            self._authorise(scope)
        await self._router(scope, receive, sent)

    def _authorise(self, scope: Scope) -> None:
        """Compare the key in constant time.

        Raises:
            HttpProblem: when it is not the right one.

        """
        given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        offered = b"Bearer " + key.strip() if scheme.lower() == b"bearer" else b""
        if self._expected is None or not hmac.compare_digest(offered, self._expected):
            detail = "Send `Authorization: Bearer KEY` with a key that is valid here."
            headers = {"WWW-Authenticate": "Bearer"}
            raise HttpProblem(HTTPStatus.UNAUTHORIZED, "unauthorized", detail, headers=headers)

    async def _answer(self, error: Exception, scope: Scope, receive: Receive, sent: _Sent) -> None:
        """Turn an error into an answer, as far as one can still be given."""
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            error.headers = {"Allow": ", ".join(allowed(self._api, scope))}
        problem = problems.known(error)
        if problem is None:
            self._report(error, scope)
            problem = problems.internal()
        instance = scope["path"]
        if not sent.status:
            await problems.response(problem, instance)(scope, receive, sent)
        elif not sent.finished and sent.streaming:
            last = b"event: error\ndata: %b\n\n" % problems.document(problem, instance)
            await sent({"type": "http.response.body", "body": last, "more_body": False})

    def _report(self, error: Exception, scope: Scope) -> None:
        self._services.observer.log(
            "http.failed",
            level="error",
            method=scope["method"],
            path=scope["path"],
            error=type(error).__name__,
            trace="".join(traceback.format_exception(error)),
        )

    def _log(self, scope: Scope, sent: _Sent, began_s: float) -> None:
        """Write the access line: the path without its query, and no header."""
        path = scope["path"]
        if path in _QUIET and sent.status < _SERVER_ERROR:
            return
        took_s = self._services.clock.boot_s() - began_s
        self._services.observer.log(
            "http.request",
            method=scope["method"],
            path=path,
            status=sent.status,
            duration_ms=round(took_s * 1000, 2),
        )


def allowed(api: Api, scope: Scope) -> list[str]:
    """Return every method that some route takes at this path."""
    found: set[str] = set()
    for route in api.routes:
        if isinstance(route, DirectRoute) and route.matches(scope)[0] is not Match.NONE:
            found |= route.takes
    return sorted(found)
