"""A service on a real socket that speaks the contract with scripted answers and streams."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.cli.events import Json


@dataclass(frozen=True)
class Delta:
    text: str


class Cut:
    """The connection breaks here."""


class Rest:
    """The stream stays open and silent, as while a turn waits for a person."""


Frame = Json | Delta | Cut | Rest


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: object


@dataclass
class Answer:
    status: int
    body: object
    content_type: str = "application/json"

    def response(self) -> web.Response:
        body = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return web.Response(status=self.status, text=body, content_type=self.content_type)


def problem(status: int, title: str, **more: object) -> Answer:
    body = {"type": "/problems/x", "title": title, "status": status, **more}
    return Answer(status, body, "application/problem+json")


@dataclass
class FakeService:
    """`streams` are given out one a connection; after the last one the answer is 204.

    `answers` go before everything else: by method and path, the first that is left.
    """

    streams: list[Sequence[Frame]] = field(default_factory=list)
    session: Json = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    page: int = 7
    lost_answers: int = 0
    """How many of the next requests are taken and never answered."""

    url: str = ""
    _leaving: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leaving.set()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.text()
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = json.loads(raw) if raw else None
        self.seen.append(Seen(request.method, request.path, dict(request.query), headers, body))
        waiting = self.answers.get(f"{request.method} {request.path}")
        if waiting:
            return waiting.pop(0).response()
        if self.lost_answers:
            self.lost_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return await self._default(request)

    async def _default(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/sessions/ses_1/stream":
            return await self._stream(request)
        session = {"id": "ses_1", "object": "session", "status": "queued", **self.session}
        match request.method, request.path.removeprefix("/v1/sessions"):
            case "POST", "":
                answer = Answer(201, {**session, "status": "queued"})
            case ("GET", "/ses_1") | ("POST", "/ses_1/resume"):
                answer = Answer(200, session)
            case "POST", "/ses_1/cancel":
                answer = Answer(200, {**session, "status": "cancelled"})
            case "GET", "/ses_1/events":
                answer = Answer(200, self._page(int(request.query["after"])))
            case _:
                answer = problem(404, "Not found", detail="There is no such thing.")
        return answer.response()

    def _page(self, after: int) -> Json:
        rest = [event for event in self.events if int(str(event["seq"])) > after]
        data = rest[: self.page]
        return {"data": data, "next": data[-1]["seq"] if len(rest) > self.page else None}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if not self.streams:
            return web.Response(status=204)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": here\n\n")
        for frame in self.streams.pop(0):
            match frame:
                case Cut():
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                case Rest():
                    await self._leaving.wait()
                case Delta(text):
                    await response.write(_frame("delta", {"text": text}))
                case _:
                    await response.write(_frame(str(frame["type"]), frame, frame["seq"]))
        await response.write_eof()
        return response


def _frame(kind: str, data: Json, seq: object = None) -> bytes:
    number = f"id: {seq}\n" if seq is not None else ""
    return f"event: {kind}\n{number}data: {json.dumps(data)}\n\n".encode()
