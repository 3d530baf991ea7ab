"""Health, readiness and metrics alone: what a process that serves nothing else may listen with."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.wire import problems
from app.api.wire.answers import as_json
from app.api.wire.problems import HttpProblem

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The three answers; `ready` answers at least `{"ready": bool}`."""

    ready: Callable[[], Awaitable[Mapping[str, object]]]
    metrics: Callable[[], bytes]
    version: str
    draining: asyncio.Event

    async def health(self) -> Response:
        """Say that the process is there."""
        return as_json({"status": "ok", "version": self.version})

    async def readiness(self) -> Response:
        """Say whether requests can be served, and what is missing."""
        shown = dict(await self.ready())
        if self.draining.is_set():
            shown |= {"ready": False, "draining": True}
        ready = shown.get("ready") is True
        return as_json(shown, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def scraped(self) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(self.metrics(), 200, {"content-type": METRICS_TYPE})


class HealthApp:
    """The application of a worker's listener."""

    def __init__(self, probes: Probes) -> None:
        """Answer with these."""
        self._answers = {
            "/healthz": probes.health,
            "/readyz": probes.readiness,
            "/metrics": probes.scraped,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; nothing but HTTP comes here."""
        answer = self._answers.get(scope["path"]) if scope["method"] in _READS else None
        if answer is None:
            detail = "A worker answers GET /healthz, /readyz and /metrics, and nothing else."
            problem = HttpProblem(HTTPStatus.NOT_FOUND, "no-such-route", detail)
            found = problems.response(problem, scope["path"])
        else:
            found = await answer()
        if scope["method"] == "HEAD":
            found.body = b""
        await found(scope, receive, send)
