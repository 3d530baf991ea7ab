"""FastAPI's routes and document, without its work for each request.

A route here takes a request and returns an answer that is ready; FastAPI's dependencies, response
models and middleware would cost more than the use case behind them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Final, cast

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from app.api.shapes.common import Problem
from app.api.wire.problems import MEDIA_TYPE

Endpoint = Callable[[Request], Awaitable[ASGIApp]]
Document = dict[str, object]
SCHEMAS: Final = "#/components/schemas/"
_DESCRIPTION: Final = (
    "Durable LLM agent sessions. Errors are `application/problem+json`; lists are "
    '`{"data": [...], "next": cursor|null}`.'
)


class EventStreamResponse(Response):
    """Names the media type of streams in the document."""

    media_type = "text/event-stream"


class TextResponse(Response):
    """Names the media type of metrics in the document."""

    media_type = "text/plain"


class PageResponse(Response):
    """Names the media type of pages in the document."""

    media_type = "text/html"


class DirectRoute(APIRoute):
    """A route whose endpoint answers by itself. Where it takes GET it takes HEAD (RFC 9110, 9.1).

    The document does not list HEAD, so it is not among `methods`; the edge leaves the body out.
    """

    def __init__(self, path: str, endpoint: Callable[..., object], **options: object) -> None:
        """Describe the route to FastAPI, and serve it directly."""
        super().__init__(path, endpoint, **options)  # type: ignore[arg-type]
        answer = cast("Endpoint", endpoint)
        # A stream has no end, so it has no headers that a client could want alone.
        streams = options.get("response_class") is EventStreamResponse
        self.heads = "GET" in (self.methods or ()) and not streams

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            response = await answer(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = serve

    @property
    def takes(self) -> set[str]:
        """Return the methods that are served here."""
        return {*(self.methods or ()), *(("HEAD",) if self.heads else ())}

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is Match.PARTIAL and self._is_head(scope):
            match = Match.FULL
        return match, found

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_head(scope):
            await self.app(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    def _is_head(self, scope: Scope) -> bool:
        return self.heads and scope["type"] == "http" and scope["method"] == "HEAD"


class Keeps(Enum):
    """Who keeps the first answer under an idempotency key (`app.api.keyed`)."""

    ROUTE = "route"
    REPEATABLE = "repeatable"
    ENDPOINT = "endpoint"


@dataclass(frozen=True, slots=True)
class Leftover:
    """What becomes of the mark of a killed process: may the request be made `again`?

    Not before the first one could have `lasted_s`, had it lived.
    """

    lasted_s: float
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation: how it is served, and what the document says of it."""

    method: str
    path: str
    id: str
    summary: str
    endpoint: Endpoint
    tag: str
    status: int = 200
    answers: type[BaseModel] | None = None
    also: Mapping[int, str] = field(default_factory=dict)
    body: type[BaseModel] | None = None
    optional_body: bool = False
    parameters: Sequence[Document] = ()
    refuses: Sequence[int] = ()
    kind: type[Response] = JSONResponse
    open: bool = False
    detail: str = ""
    keeps: Keeps = Keeps.ROUTE
    leaves: Callable[[Request], Awaitable[Leftover]] | None = None


class Api(FastAPI):
    """The routes and their document."""

    def __init__(self, operations: Sequence[Operation], version: str) -> None:
        """Take the operations in order of how often they are asked for."""
        super().__init__(
            title="Surefoot",
            version=version,
            description=_DESCRIPTION,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self.operations = tuple(operations)
        self._bodies = {op.body for op in operations if op.body is not None}
        router: APIRouter = self.router
        router.route_class = DirectRoute
        for operation in operations:
            _add(router, operation)

    @override
    def openapi(self) -> Document:
        """Return the document, with what FastAPI cannot see: request bodies and problems."""
        document: Document = super().openapi()
        components = cast("dict[str, Document]", document.setdefault("components", {}))
        schemas = components.setdefault("schemas", {})
        models: list[type[BaseModel]] = [
            *sorted(self._bodies, key=lambda model: model.__name__),
            Problem,
        ]
        _, found = models_json_schema(
            [(model, "validation") for model in models],
            ref_template=SCHEMAS + "{model}",
        )
        schemas.update(cast("Document", found["$defs"]))
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return document


def _add(router: APIRouter, op: Operation) -> None:
    responses: dict[int | str, dict[str, object]] = {}
    if op.answers is not None:
        responses[op.status] = {"model": op.answers}
    for status, description in op.also.items():
        same = {"model": op.answers} if op.answers is not None and _has_body(status) else {}
        responses[status] = {**same, "description": description}
    for status in _refusals(op):
        responses[status] = _problem(status)
    router.add_api_route(
        op.path,
        op.endpoint,
        methods=[op.method],
        operation_id=op.id,
        summary=op.summary,
        description=op.detail or None,
        tags=[op.tag],
        status_code=op.status,
        response_model=None,
        response_class=op.kind,
        response_description=HTTPStatus(op.status).phrase,
        responses=responses,
        openapi_extra=_extra(op),
    )


def _has_body(status: int) -> bool:
    return status != HTTPStatus.NO_CONTENT


def _refusals(op: Operation) -> list[int]:
    common = [500] if op.open else [400, 401, 500, 503]
    of_body = [413, 415, 422] if op.body is not None else []
    return sorted({*common, *of_body, *op.refuses})


def _problem(status: int) -> dict[str, object]:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": SCHEMAS + Problem.__name__}}},
    }


def _extra(op: Operation) -> Document:
    extra: Document = {"security": [] if op.open else [{"key": []}]}
    if op.parameters:
        extra["parameters"] = list(op.parameters)
    if op.body is not None:
        schema = {"$ref": SCHEMAS + op.body.__name__}
        extra["requestBody"] = {
            "required": not op.optional_body,
            "content": {"application/json": {"schema": schema}},
        }
    return extra
