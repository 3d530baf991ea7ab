"""Refusals and faults as problem documents (RFC 9457). docs/problems.md explains each type."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.runtime.errors import KeyMissing, LiveUnavailable, PortError, StoreUnavailable, Tampered
from app.runtime.refusals import (
    Conflict,
    FieldFault,
    Invalid,
    KeyCutOff,
    KeyInFlight,
    KeyReused,
    NotFound,
    NotSupported,
    NoWorker,
    Overloaded,
    Refused,
)

MEDIA_TYPE: Final = "application/problem+json"
BASE: Final = "/problems/"
_MOST_ERRORS: Final = 20

TITLES: Final[Mapping[str, str]] = {
    "invalid-request": "A field of the request is at fault",
    "invalid-parameter": "A parameter of the request is at fault",
    "not-supported-yet": "The contract knows this, but this release does not have it yet",
    "not-json": "The body is not JSON",
    "body-too-large": "The body is too large",
    "body-too-slow": "The body took too long to come",
    "unsupported-media-type": "The body has another content type than JSON",
    "unauthorized": "A key is needed",
    "no-such-route": "There is nothing at this path",
    "method-not-allowed": "The path does not take this method",
    "idempotency-key-reused": "The idempotency key stands for another request",
    "idempotency-key-in-flight": "The first request under this key has not ended",
    "idempotency-key-cut-off": "The first request under this key was cut off",
    "overloaded": "Too many sessions wait for a worker already",
    "too-many-streams": "This process has as many streams open as it takes",
    "too-many-connections": "This process has as many connections open as it takes",
    "no-worker": "No worker is there to carry it out",
    "store-unavailable": "The database cannot be reached now",
    "live-unavailable": "Redis cannot be reached now",
    "key-missing": "This process lacks an encryption key",
    "internal-error": "Something went wrong on our side",
    "session-not-found": "There is no such session",
    "schedule-not-found": "There is no such schedule",
    "tool-not-found": "There is no such tool",
    "session-busy": "The session is busy",
    "session-ended": "The session takes no message any more",
    "session-erased": "The content of the session was erased",
    "session-unreadable": "The content of the session cannot be read here",
    "journal-too-long": "The session is too long for this in one request",
    "limits-not-raised": "The limits that stopped the turn still hold",
    "not-resumable": "There is nothing to resume",
    "resume-pending": "The turn is being resumed already",
    "verification-not-pending": "The session does not wait for this verification",
    "verification-decided": "The call was verified already",
    "tool-result-not-pending": "The session does not wait for this result",
    "tool-result-given": "The call has its result already",
    "approval-not-found": "There is no such approval",
    "approval-decided": "The approval was decided already",
    "approval-expired": "The approval has expired",
    "approval-superseded": "The turn went on or ended without this approval",
    "approval-hash-mismatch": "The approval is for other arguments",
    "webhook-not-found": "There is no such webhook",
    "delivery-not-found": "There is no such delivery",
    "tool-exists": "There is a tool of this name already",
    "tool-built-in": "A built-in tool cannot be changed",
    "tool-of-client": "The client carries this tool out",
    "tool-changed": "The tool was changed by somebody else meanwhile",
}
"""Every problem type there is, with its title."""


class HttpProblem(Exception):  # noqa: N818 - an answer, not a failure
    """A request that HTTP itself refuses."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *errors: FieldFault,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the answer."""
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})


def bad_parameter(name: str, message: str) -> HttpProblem:
    """Return the problem of a parameter at fault; its name is a pointer such as `/query/after`."""
    fault = FieldFault(name, message)
    return HttpProblem(HTTPStatus.BAD_REQUEST, "invalid-parameter", message, fault)


_STATUS: Final[Mapping[type[Refused], HTTPStatus]] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotSupported: HTTPStatus.UNPROCESSABLE_ENTITY,
    KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    KeyInFlight: HTTPStatus.CONFLICT,
    KeyCutOff: HTTPStatus.CONFLICT,
    NoWorker: HTTPStatus.SERVICE_UNAVAILABLE,
    Overloaded: HTTPStatus.TOO_MANY_REQUESTS,
}
_RETRY_AFTER: Final[Mapping[type[Refused], str]] = {
    KeyInFlight: "1",
    NoWorker: "5",
    Overloaded: "2",
}


def known(error: Exception) -> HttpProblem | None:
    """Return the problem that answers an error, or None when nothing but 500 does."""
    match error:
        case HttpProblem():
            return error
        case Refused():
            return refused(error)
        case PortError():
            return _port(error)
        case HTTPException():
            return _routing(error)
        case _:
            return None


def _port(error: PortError) -> HttpProblem | None:
    match error:
        case StoreUnavailable():
            detail = "The database cannot be reached now; try again soon."
            return _unavailable("store-unavailable", detail)
        case LiveUnavailable():
            return _unavailable("live-unavailable", "Redis cannot be reached now; try again soon.")
        case KeyMissing():
            detail = f"{error} Whoever runs this has to add it to SUREFOOT_ENCRYPTION_KEYS."
            return _unavailable("key-missing", detail)
        case Tampered():
            detail = f"{error} It was changed, or sealed with another key than this process has."
            return HttpProblem(HTTPStatus.CONFLICT, "session-unreadable", detail)
        case _:
            return None


def internal() -> HttpProblem:
    """Return what is said of an error nobody expected: nothing of its inside."""
    detail = "The request failed on our side. It is logged; try again, or ask whoever runs this."
    return HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", detail)


def response(problem: HttpProblem, instance: str) -> Response:
    """Return the problem as an answer."""
    content = document(problem, instance)
    return Response(content, problem.status, problem.headers, MEDIA_TYPE)


def document(problem: HttpProblem, instance: str) -> bytes:
    """Return the problem document."""
    shown: dict[str, object] = {
        "type": BASE + problem.slug,
        "title": TITLES.get(problem.slug) or HTTPStatus(problem.status).phrase,
        "status": int(problem.status),
        "detail": problem.detail,
        "instance": instance,
    }
    if problem.errors:
        shown["errors"] = _faults(problem.errors)
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")


def _faults(errors: Sequence[FieldFault]) -> list[dict[str, str]]:
    return [{"pointer": e.pointer, "message": e.message} for e in errors[:_MOST_ERRORS]]


def refused(error: Refused) -> HttpProblem:
    """Return the problem that answers a refusal."""
    kind = next(kind for kind in type(error).__mro__ if kind in _STATUS or kind is Refused)
    status = _STATUS.get(kind, HTTPStatus.BAD_REQUEST)
    wait = _RETRY_AFTER.get(kind)
    headers = {"Retry-After": wait} if wait else None
    return HttpProblem(status, error.slug, error.detail, *error.errors, headers=headers)


def _unavailable(slug: str, detail: str) -> HttpProblem:
    headers = {"Retry-After": "1"}
    return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, slug, detail, headers=headers)


def _routing(error: HTTPException) -> HttpProblem:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = "The path does not take this method; the Allow header lists those it takes."
        headers = dict(error.headers or {})
        return HttpProblem(error.status_code, "method-not-allowed", detail, headers=headers)
    detail = "There is nothing at this path; /docs lists what there is."
    return HttpProblem(HTTPStatus.NOT_FOUND, "no-such-route", detail)
