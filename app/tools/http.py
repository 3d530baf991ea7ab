"""HTTP tools: one request, its redirects, and what its answer or failure means.

`sent` of a fault is exact: it turns true when the first byte of the request is about to be
written. Calls with effect `once` get a connection of their own, so that one which the server is
just closing never makes their outcome uncertain; nothing here ever sends a request twice.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

import httpcore2
import httpx2

from app.core.events import EffectClass
from app.core.faults import Fault, FaultKind
from app.runtime.errors import ToolFailure, Withheld
from app.runtime.ports.process import Clock
from app.runtime.ports.tools import StatusReply, ToolReply, ToolRequest
from app.tools import redirects
from app.tools.egress import EgressGuard, EgressRefusedError, UnresolvedError
from app.tools.network import PinnedBackend, host_and_port
from app.tools.present import present
from app.tools.received import MOST_BYTES, Received, fault_of, value_of
from app.tools.status import question, status_of
from app.tools.templates import Outgoing, build

_CONNECTIONS: Final = 200
_IDLE: Final = 50
_IDLE_S: Final = 5.0
_IN_THREAD: Final = 65_536
EGRESS: Final = "egress"
"""The guard that is named when a call goes where none may go."""

_DEFAULTS: Final = {
    "accept": "application/json, text/*;q=0.9, */*;q=0.5",
    "accept-encoding": "identity",
}


@dataclass(slots=True)
class _Flight:
    """Whether a request may have reached the other side, and whether it still may.

    `taken` says that the call itself was answered: what comes after it only reads on.
    """

    host: str
    may_send: Callable[[], bool]
    sent: bool = False
    taken: bool = False

    async def trace(self, name: str, _info: object) -> None:
        if name.endswith("send_request_headers.started"):
            if not self.may_send():
                raise Withheld(self.host)
            self.sent = True


class HttpTools:
    """Carries out HTTP tools; close it when the process ends."""

    def __init__(
        self,
        *,
        guard: EgressGuard,
        secrets: Mapping[str, str],
        clock: Clock,
        version: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secrets = secrets
        self._clock = clock
        self._agent = f"surefoot/{version}"
        context = tls or httpcore2.default_ssl_context()
        self._shared = _pool(guard, context, idle=_IDLE)
        self._single = _pool(guard, context, idle=0)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._shared.aclose()
        await self._single.aclose()

    async def run(self, request: ToolRequest) -> ToolReply:
        """Make the call, once.

        Raises:
            ToolFailure: when there is no good answer within the time.
            Withheld: when it might not be sent any more.

        """
        spec = request.spec
        if spec.http is None:
            raise ToolFailure(Fault.of(FaultKind.INTERNAL, "The tool has no URL.", sent=False))
        properties = spec.parameters.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        outgoing = build(spec.http, request.arguments, known=known, secrets=self._secrets)
        flight = _Flight(outgoing.target.authority, request.may_send)
        try:
            async with _within(request.timeout_s, flight):
                received = await self._exchange(outgoing, request, flight)
                return await self._reply(received, flight.host, spec.max_chars)
        except ToolFailure as failure:
            if flight.taken:
                raise redirects.unread(failure) from None
            raise

    async def check(self, request: ToolRequest) -> StatusReply:
        """Ask the tool's status check what became of the call with this key.

        Raises:
            ToolFailure: when it gives no answer that says.
            Withheld: when it might not be asked any more.

        """
        spec = request.spec
        if spec.status_check is None:
            message = f"{spec.name} has no status check."
            raise ToolFailure(Fault.of(FaultKind.INTERNAL, message, sent=False))
        outgoing = question(spec, spec.status_check, request.arguments, request.key, self._secrets)
        flight = _Flight(outgoing.target.authority, request.may_send)
        async with _within(request.timeout_s, flight):
            received = await self._send(self._shared, outgoing, request, flight, keyed=False)
            told = (received, flight.host, spec.max_chars, self._clock.now_us())
            if len(received.body) > _IN_THREAD:
                return await asyncio.to_thread(status_of, *told)
            return status_of(*told)

    async def _reply(self, received: Received, host: str, max_chars: int) -> ToolReply:
        fault = fault_of(received, host, self._clock.now_us())
        if fault is not None:
            raise ToolFailure(fault)
        if len(received.body) > _IN_THREAD:
            return await asyncio.to_thread(_present, received, max_chars)
        return _present(received, max_chars)

    async def _exchange(
        self, outgoing: Outgoing, request: ToolRequest, flight: _Flight
    ) -> Received:
        effect = request.spec.effect
        pool = self._single if effect is EffectClass.ONCE else self._shared
        for _ in range(redirects.MOST + 1):
            flight.host = outgoing.target.authority
            received = await self._send(pool, outgoing, request, flight)
            if received.status not in redirects.STATUSES or "location" not in received.headers:
                return received
            flight.taken |= redirects.takes(outgoing.method, received.status, effect)
            outgoing = redirects.follow(outgoing, received.status, received.headers, effect)
        message = f"The tool's server redirects more than {redirects.MOST} times."
        raise ToolFailure(Fault.of(FaultKind.PERMISSION, message))

    async def _send(
        self,
        pool: httpcore2.AsyncConnectionPool,
        outgoing: Outgoing,
        request: ToolRequest,
        flight: _Flight,
        *,
        keyed: bool = True,
    ) -> Received:
        try:
            key = request.key if keyed else ""
            made = self._request(outgoing, key, request.traceparent, flight)
            response = await pool.handle_async_request(made)
            try:
                return await _receive(response, outgoing.secrets)
            finally:
                await response.aclose()
        except EgressRefusedError as error:
            fault = Fault.of(FaultKind.PERMISSION, f"{error}.", sent=flight.sent)
            raise ToolFailure(fault, flagged=EGRESS) from None
        except UnresolvedError as error:
            raise _failure(FaultKind.UNAVAILABLE, f"{error}.", flight) from None
        except (httpcore2.LocalProtocolError, httpx2.InvalidURL):
            message = f"The request to {flight.host} cannot be written as HTTP."
            raise _failure(FaultKind.INTERNAL, message, flight) from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError):
            reason = "broke the connection" if flight.sent else "could not be reached"
            raise _failure(FaultKind.UNAVAILABLE, f"{flight.host} {reason}.", flight) from None
        except httpcore2.ProtocolError:
            message = f"{flight.host} did not answer in HTTP, or closed the connection."
            raise _failure(FaultKind.UNAVAILABLE, message, flight) from None

    def _request(
        self, outgoing: Outgoing, key: str, traceparent: str, flight: _Flight
    ) -> httpcore2.Request:
        """Return the request; one without a key has no `Idempotency-Key` (a lookup is no call)."""
        target = outgoing.target
        host, port = host_and_port(target.scheme, target.authority)
        url = httpcore2.URL(scheme=target.scheme, host=host, port=port, target=target.resource)
        headers = {
            "host": _host_header(target.scheme, host, port),
            "user-agent": self._agent,
            **_DEFAULTS,
            **dict(outgoing.headers),
            "idempotency-key": key,
            "traceparent": traceparent,
        }
        if outgoing.content or outgoing.method not in {"GET", "HEAD", "DELETE"}:
            headers["content-length"] = str(len(outgoing.content))
        return httpcore2.Request(
            outgoing.method,
            url,
            headers=[(name.encode(), value.encode()) for name, value in headers.items() if value],
            content=outgoing.content,
            extensions={"trace": flight.trace},
        )


def _pool(
    guard: EgressGuard, context: ssl.SSLContext, *, idle: int
) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=context,
        max_connections=_CONNECTIONS,
        max_keepalive_connections=idle,
        keepalive_expiry=_IDLE_S,
        retries=0,
        network_backend=cast("httpcore2.AsyncNetworkBackend", PinnedBackend(guard)),
    )


@asynccontextmanager
async def _within(seconds: float, flight: _Flight) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        message = f"{flight.host} gave no answer within {seconds:g} s."
        fault = Fault.of(FaultKind.TIMEOUT, message, sent=flight.sent)
        raise ToolFailure(fault) from None


async def _receive(response: httpcore2.Response, secrets: tuple[str, ...]) -> Received:
    body = bytearray()
    cut_off = False
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > MOST_BYTES:
            del body[MOST_BYTES:]
            cut_off = True
            break
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }
    return Received(response.status, headers, bytes(body), cut_off, secrets)


def _present(received: Received, max_chars: int) -> ToolReply:
    return present(value_of(received), max_chars, cut_off=received.cut_off)


def _host_header(scheme: str, host: bytes, port: int) -> str:
    name = f"[{host.decode()}]" if b":" in host else host.decode()
    return name if port == (443 if scheme == "https" else 80) else f"{name}:{port}"


def _failure(kind: FaultKind, message: str, flight: _Flight) -> ToolFailure:
    return ToolFailure(Fault.of(kind, message, sent=flight.sent))
