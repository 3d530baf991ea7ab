"""`Idempotency-Key` on every POST (draft-ietf-httpapi-idempotency-key-header-07).

An operation says by `keeps` who keeps its first answer, and need do nothing else:

    Keeps.ROUTE       the route, around an endpoint that knows nothing of it (the default); what
                      a killed process has left under the key is told to be cut off after a while
    Keeps.REPEATABLE  the same, for what does no harm when it is done again: then it is
    Keeps.ENDPOINT    the endpoint itself, in the transaction of the effect: it reads its request
                      with `attempted`

Where that depends on the request, an operation says it by `leaves`.

The key counts for a tenant. An answer is kept for as long as records are (docs/operating.md).
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive

from app.api.deps import TENANT, ApiServices
from app.api.remembering import remembered
from app.api.wire import describing, params
from app.api.wire.answers import answer
from app.api.wire.body import canonical, check_type, decode, read_object, read_raw
from app.api.wire.routing import Endpoint, Keeps, Leftover, Operation
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.verbs import SETTLE_S

_OF_A_SESSION: Final = "/v1/sessions/{id}/"
_IN_FLIGHT: Final = 409
_REUSED: Final = 422


def keyed(operation: Operation, services: ApiServices) -> Operation:
    """Return a POST that honours the key, and says so in the document; others as they are."""
    if operation.method != "POST":
        return operation
    parameters = (*operation.parameters, describing.IDEMPOTENCY_KEY)
    refuses = (*operation.refuses, _IN_FLIGHT, _REUSED)
    documented = replace(operation, parameters=parameters, refuses=refuses)
    if operation.keeps is Keeps.ENDPOINT:
        return documented
    return replace(documented, endpoint=_kept(operation, services))


async def attempted(
    request: Request, services: ApiServices, *, optional: bool = False
) -> tuple[Attempt | None, dict[str, object]]:
    """Return the attempt, None for a request without a key, and the body."""
    key = params.idempotency_key(request)
    content = await read_object(request, services.body_limit, optional=optional)
    if key is None:
        return None, content
    return Attempt.by_user(TENANT, key, _route(request), canonical(content)), content


def _kept(operation: Operation, services: ApiServices) -> Endpoint:
    leaves = operation.leaves or _usual(services, again=operation.keeps is Keeps.REPEATABLE)

    @wraps(operation.endpoint)
    async def endpoint(request: Request) -> ASGIApp:
        key = params.idempotency_key(request)
        if key is None:
            return await operation.endpoint(request)
        raw = await read_raw(request, services.body_limit)
        if raw:
            check_type(request)
        said = canonical(decode(raw)) if raw else b""
        attempt = Attempt.by_user(TENANT, key, _route(request), said)

        async def work() -> Answer:
            again = Request(request.scope, _replaying(raw, request.receive))
            return _answer(await operation.endpoint(again))

        made = await remembered(
            services, attempt, work, lambda: leaves(request), _session_of(operation, request)
        )
        return answer(made)

    return endpoint


def _session_of(operation: Operation, request: Request) -> str | None:
    named = operation.path.startswith(_OF_A_SESSION)
    return params.path_id(request, "session") if named else None


def _usual(services: ApiServices, *, again: bool) -> Callable[[Request], Awaitable[Leftover]]:
    """Return what is so of any request: the one that lasts longest is a cancel."""

    async def leaves(_request: Request) -> Leftover:
        return Leftover(SETTLE_S + services.sessions.lease_s, again)

    return leaves


def _route(request: Request) -> str:
    return f"{request.method} {request.scope['path']}"


def _replaying(raw: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return again


def _answer(made: ASGIApp) -> Answer:
    """Return what can be given again.

    Raises:
        TypeError: when it is a stream, which cannot; its endpoint has to keep the key itself.

    """
    if not isinstance(made, Response):
        message = "An answer that is a stream cannot be remembered: use Keeps.ENDPOINT."
        raise TypeError(message)
    return Answer(made.status_code, bytes(made.body), location=made.headers.get("location"))
