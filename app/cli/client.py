"""The HTTP API as the commands use it; the only module of the command line that knows HTTP.

What goes wrong comes out as a `CliError` that says what happened and what to do. A call that is
safe to send again (a GET, a PUT, a POST with its idempotency key) is sent again when the connection
breaks; a connection that is refused is reported at once.
"""

import os
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import httpx2

from app.cli.outcome import CliError, ServiceError, UnreachableError
from app.cli.values import Record, clean, record, records, text

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.3
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 60.0
"""Cancelling waits on the server for the session to settle, longest at its default lease."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_NO_CONTENT: Final = 204
_LEAST_ERROR: Final = 400
_WHAT_TO_DO: Final = {
    401: "Set SUREFOOT_API_KEY to a valid key of this service.",
    403: "Use a key that has the scope for this.",
    404: "Check the name or id, and that SUREFOOT_API_KEY belongs to its tenant.",
    422: "Correct what is named above and try again.",
    429: "Wait a little and try again.",
    502: "Check the proxy in front of the service.",
    503: "The service is not ready for this yet; `GET /readyz` says why. Try again shortly.",
}


def command(url: str) -> str:
    """Return how to call this command so that it speaks to the same service."""
    asked = os.environ.get("SUREFOOT_URL") or DEFAULT_URL
    return "surefoot" if url == asked.rstrip("/") else f"surefoot --url {shlex.quote(url)}"


Pause = Callable[[float], None]


class Service:
    """A connection to one Surefoot service, for the length of a `with`."""

    def __init__(self, *, url: str, api_key: str | None, pause: Pause = time.sleep) -> None:
        """Keep the address and the key; nothing is sent yet."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CliError(
                f"{url!r} is no address of a service.",
                todo=f"Set SUREFOOT_URL to something like {DEFAULT_URL}.",
            )
        self.url = url.rstrip("/")
        self.pause = pause
        self.has_key = bool(api_key)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S),
            # A proxy of the environment has no business between two programs of this machine.
            trust_env=parts.hostname not in _LOOPBACK,
        )

    def __enter__(self) -> Self:
        """Open the pool."""
        self._client.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        self._client.__exit__(kind, error, trace)

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Record:
        """Return the object at a path."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: object = None) -> Record:
        """Send a body under a key of its own, so that it takes effect once."""
        return self._call("POST", path, body=body)

    def put(self, path: str, body: object) -> Record:
        """Replace what is at a path."""
        return self._call("PUT", path, body=body)

    def pages(
        self, path: str, *, after: str | int | None = None, only: Mapping[str, str] | None = None
    ) -> Iterator[Record]:
        """Yield every item of a list, page by page; `only` are the filters of the list."""
        while True:
            params: dict[str, str | int] = {**(only or {}), "limit": 500}
            if after is not None:
                params["after"] = after
            page = self.get(path, params)
            yield from records(page.get("data"))
            cursor = page.get("next")
            if cursor is None or cursor == after:
                return
            after = cursor if isinstance(cursor, int) else text(cursor)

    @contextmanager
    def events(
        self, path: str, *, params: Mapping[str, str | int], last_event_id: str | None
    ) -> Iterator[Iterator[httpx2.ServerSentEvent] | None]:
        """Open a stream; None when there is nothing more to read.

        Raises:
            httpx2.TransportError: when the connection cannot be made or breaks; the reader knows
                from where to go on.
            ServiceError: for an answer that is no stream.

        """
        headers = {"Last-Event-ID": last_event_id} if last_event_id is not None else {}
        with self._client.sse(path, params=params, headers=headers) as source:
            response = source.response
            if response.status_code == _NO_CONTENT:
                yield None
                return
            if response.status_code >= _LEAST_ERROR:
                response.read()
            self._check(response)
            yield iter(source)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
    ) -> Record:
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method == "POST" else {}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._client.request(
                    method, path, params=params, json=body, headers=headers
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                raise unreachable(self.url, error) from error
            except httpx2.TransportError as error:
                if attempt == _ATTEMPTS:
                    raise unreachable(self.url, error) from error
                self.pause(_PAUSE_S * attempt)
            else:
                return self._check(response)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _check(self, response: httpx2.Response) -> Record:
        if response.status_code >= _LEAST_ERROR:
            raise refused(self.url, response)
        if not _is_json(response):
            return {}
        try:
            return record(response.json())
        except ValueError:
            raise CliError(
                f"{self.url} sent an answer that is not JSON.",
                todo="Check that SUREFOOT_URL is the address of a Surefoot service.",
            ) from None


def _is_json(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Return the error for a service that does not answer."""
    reason = str(error) or type(error).__name__
    return UnreachableError(
        f"Surefoot cannot be reached at {url} ({reason}).",
        todo="Start it with `surefoot dev`, or set SUREFOOT_URL to where it runs.",
    )


def refused(url: str, response: httpx2.Response) -> ServiceError:
    """Return a refusal in words: the problem document's, where the answer is one."""
    status = response.status_code
    problem = _problem(response)
    if not problem:
        return ServiceError(
            f"{url} answered {status} {response.reason_phrase}, and not as Surefoot does.",
            status=status,
            todo=_WHAT_TO_DO.get(
                status, "Check that SUREFOOT_URL is the address of a Surefoot service."
            ),
        )
    title, detail = text(problem.get("title")), text(problem.get("detail"))
    parts = [part for part in (title or "The request was refused", detail) if part]
    lines = [f"{': '.join(parts)} ({status})"]
    lines += [
        f"  {text(field.get('pointer')) or 'body'}: {text(field.get('message'))}"
        for field in records(problem.get("errors"))
    ]
    return ServiceError(clean("\n".join(lines)), status=status, todo=_WHAT_TO_DO.get(status, ""))


def _problem(response: httpx2.Response) -> Record:
    if not _is_json(response):
        return {}
    try:
        return record(response.json())
    except ValueError:
        return {}
