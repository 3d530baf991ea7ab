"""Messages to endpoints of users (webhooks): signed, past the egress guard, answers not read.

The same guard and pinned connections as for tools. No redirect is followed: an endpoint has one
address, and whoever moves it changes it here. Nothing of an answer but its status and
`Retry-After` is looked at, so a webhook shows nothing of what is behind an address.
"""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

import httpcore2
import httpx2
from standardwebhooks.webhooks import Webhook

from app.runtime.ports.process import Clock
from app.runtime.side.webhook_records import Posted
from app.tools.egress import EgressGuard, EgressRefusedError, UnresolvedError, literal_address
from app.tools.network import PinnedBackend, host_and_port
from app.tools.received import retry_after_us

_MOST_URL: Final = 2048
_CONNECTIONS: Final = 256
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NO_HTTP: Final = frozenset(
    {
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95),
        *(101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161),
        *(179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563),
        *(587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 5060, 5061),
        *(6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 11211),
    }
)
"""Ports where other protocols live (those of the Fetch standard, and of two stores)."""


def sign(secret: str, message_id: str, at_us: int, body: bytes) -> str:
    """Return a signature as Standard Webhooks says: version 1, HMAC-SHA256."""
    moment = datetime.fromtimestamp(at_us // 1_000_000, tz=UTC)
    return Webhook(secret).sign(message_id, moment, body.decode())


class OutgoingPosts:
    """The `Poster`; close it when the process ends."""

    def __init__(
        self,
        *,
        guard: EgressGuard,
        clock: Clock,
        version: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._agent = f"surefoot/{version}"
        self._timeout_s = timeout_s
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpcore2.default_ssl_context(),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=0,
            retries=0,
            network_backend=cast("httpcore2.AsyncNetworkBackend", PinnedBackend(guard)),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    async def refusal(self, url: str) -> str | None:
        """Return why nothing may be sent to an address; None when it may, or is not known yet."""
        reason = _malformed(url)
        if reason is not None:
            return reason
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._guard.addresses(parts.hostname or "", port)
        except EgressRefusedError as error:
            return str(error)
        except (UnresolvedError, TimeoutError):
            pass  # it may come to have an address; each attempt looks again
        return None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send once and return what came of it; follows no redirect, and never raises."""
        reason = _malformed(url)
        if reason is not None:
            return Posted(None, reason)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._pool.handle_async_request(self._request(url, headers, body))
                await response.aclose()
        except TimeoutError:
            return Posted(None, f"The endpoint gave no answer within {self._timeout_s:g} s.")
        except (EgressRefusedError, UnresolvedError) as error:
            return Posted(None, f"{error}.")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpx2.InvalidURL, OSError):
            return Posted(None, "The endpoint cannot be reached, or does not answer in HTTP.")
        return self._posted(response)

    def _posted(self, response: httpcore2.Response) -> Posted:
        stated = [value for name, value in response.headers if name.lower() == b"retry-after"]
        wait_us = None
        if stated:
            wait_us = retry_after_us(stated[0].decode("latin-1"), self._clock.now_us())
        wait_s = None if wait_us is None else wait_us / 1e6
        if 300 <= response.status < 400:  # noqa: PLR2004 - the class of redirects
            error = f"The endpoint redirects (HTTP {response.status}); that is not followed."
            return Posted(response.status, error, wait_s)
        return Posted(response.status, None, wait_s)

    def _request(self, url: str, headers: Mapping[str, str], body: bytes) -> httpcore2.Request:
        parts = urlsplit(url)
        authority = parts.netloc
        host, port = host_and_port(parts.scheme, authority)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {
            "host": authority,
            "user-agent": self._agent,
            "accept": "*/*",
            "accept-encoding": "identity",
            **headers,
            "content-length": str(len(body)),
        }
        return httpcore2.Request(
            "POST",
            httpcore2.URL(scheme=parts.scheme, host=host, port=port, target=target),
            headers=[(name.encode(), value.encode()) for name, value in sent.items()],
            content=body,
        )


def _malformed(url: str) -> str | None:
    """Return what is wrong with an address as it is written."""
    if len(url) > _MOST_URL:
        return f"must not be longer than {_MOST_URL} characters"
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "must be a URL of printable ASCII characters"
    try:
        parts = urlsplit(url)
        port = parts.port
        literal_address(parts.hostname or "")
    except ValueError:
        return "must be a URL"
    except EgressRefusedError as error:
        return str(error)
    return _unfit(parts, port)


def _unfit(parts: SplitResult, port: int | None) -> str | None:
    if parts.scheme not in _DEFAULT_PORTS:
        return "must begin with https:// or http://"
    if not parts.hostname or "@" in parts.netloc or parts.fragment:
        return "must name a host, without a user, a password or a fragment"
    if port == 0 or port in _NO_HTTP:
        return f"must not name port {port}, where no web server is"
    return None
