"""Answers ready for the wire."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from app.api.wire.problems import MEDIA_TYPE
from app.runtime.sessions.idempotency import Answer
from app.runtime.views import to_json

JSON = "application/json"


def answer(found: Answer, *, location: str | None = None) -> Response:
    """Return the answer of a use case; one given again may be a problem."""
    headers = {}
    location = location or found.location
    if location is not None:
        headers["Location"] = location
    if found.replayed:
        headers["Idempotency-Replayed"] = "true"
    kind = JSON if found.status < HTTPStatus.BAD_REQUEST else MEDIA_TYPE
    if not found.body:
        return Response(None, found.status, headers)
    return Response(found.body, found.status, headers, kind)


def as_json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as an answer."""
    return Response(to_json(value), status, dict(headers or {}), JSON)


def page(items: list[bytes], after: bytes) -> Response:
    """Return a list of JSON texts, as they are, with the cursor as JSON."""
    body = b'{"data":[%b],"next":%b}' % (b",".join(items), after)
    return Response(body, 200, None, JSON)
