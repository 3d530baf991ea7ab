"""`Idempotency-Key` on every POST (draft-ietf-httpapi-idempotency-key-header-07).

An operation says by `keeps` who keeps its first answer, and need do nothing else:

    Keeps.ROUTE       the route, around the endpoint, which sees no key (the default)
    Keeps.REPEATABLE  the same, for what does no harm when it is done again: the mark that a killed
                      process has left is taken over after a while
    Keeps.ENDPOINT    the endpoint itself, in the transaction of the effect

The key counts for a tenant. An answer is kept for as long as records are (docs/operating.md).
"""

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
from app.api.wire.body import canonical, check_type, decode, read_raw
from app.api.wire.routing import Endpoint, Keeps, Operation
from app.runtime.sessions.idempotency import Answer, Attempt

HEADER: Final = b"idempotency-key"
_IN_FLIGHT: Final = 409
_REUSED: Final = 422


def keyed(operation: Operation, services: ApiServices) -> Operation:
    """Return a POST that honours the key, and says so in the document; others as they are."""
    if operation.method != "POST":
        return operation
    parameters = operation.parameters
    if describing.IDEMPOTENCY_KEY not in parameters:
        parameters = (*parameters, describing.IDEMPOTENCY_KEY)
    refuses = (*operation.refuses, _IN_FLIGHT, _REUSED)
    documented = replace(operation, parameters=parameters, refuses=refuses)
    if operation.keeps is Keeps.ENDPOINT:
        return documented
    return replace(documented, endpoint=_kept(operation, services))


def _kept(operation: Operation, services: ApiServices) -> Endpoint:
    repeatable = operation.keeps is Keeps.REPEATABLE

    @wraps(operation.endpoint)
    async def endpoint(request: Request) -> ASGIApp:
        key = params.idempotency_key(request)
        if key is None:
            return await operation.endpoint(request)
        raw = await read_raw(request, services.body_limit)
        if raw:
            check_type(request)
        said = canonical(decode(raw)) if raw else b""
        attempt = Attempt.of(TENANT, key, f"{request.method} {request.scope['path']}", said)

        async def work() -> Answer:
            return _answer(await operation.endpoint(_without_key(request, raw)))

        return answer(await remembered(services, attempt, work, repeatable=repeatable))

    return endpoint


def _without_key(request: Request, raw: bytes) -> Request:
    """Return the request as it came, its body still to be read, without its key."""
    headers = [(name, value) for name, value in request.scope["headers"] if name != HEADER]
    return Request({**request.scope, "headers": headers}, _replaying(raw, request.receive))


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
