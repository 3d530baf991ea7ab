"""A client of the HTTP API for tests, and a reader of streams that comes back with its last id."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.waiting import until

Json = dict[str, Any]
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all: by default each client reads every root certificate, which takes 25 ms."""
SETTLED = frozenset({"completed", "stopped", "failed", "cancelled", "closed", "waiting"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stream; `seq` is None for deltas."""

    type: str
    seq: int | None
    data: Json


class Client:
    """One process's API."""

    def __init__(self, url: str) -> None:
        """Connect when first asked."""
        self.url = url
        # Well before the service closes an idle connection, or a request may meet the closing.
        limits = httpx2.Limits(max_connections=100, keepalive_expiry=1.0)
        self.http = httpx2.AsyncClient(base_url=url, timeout=60, verify=_NO_TLS, limits=limits)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def post(self, path: str, body: object = None, *, expect: int | None = None) -> Json:
        """Post, check the status (2xx, or the one expected), and return the answer."""
        response = await self.http.post(path, json={} if body is None else body)
        status = response.status_code
        wanted = status == expect if expect else httpx2.codes.is_success(status)
        assert wanted, f"{path}: {status} {response.text}"
        answer: Json = response.json()
        return answer

    async def get(self, path: str) -> Json:
        """Return what is there."""
        response = await self.http.get(path)
        assert response.status_code == httpx2.codes.OK, f"{path}: {response.text}"
        answer: Json = response.json()
        return answer

    async def register(self, *specs: Json) -> None:
        """Register tools."""
        for spec in specs:
            await self.post("/v1/tools", spec, expect=201)

    async def create(self, task: str, **fields: object) -> str:
        """Create a session and return its id."""
        made = await self.post("/v1/sessions", {"task": task, **fields}, expect=201)
        return str(made["id"])

    async def session(self, session_id: str) -> Json:
        """Return a session."""
        return await self.get(f"/v1/sessions/{session_id}")

    async def status(self, session_id: str) -> str:
        """Return a session's status."""
        return str((await self.session(session_id))["status"])

    async def settled(self, session_id: str, *, timeout_s: float = 60.0) -> Json:
        """Return a session once its turn has ended or waits for somebody."""
        return await self.reached(session_id, *SETTLED, timeout_s=timeout_s)

    async def reached(self, session_id: str, *statuses: str, timeout_s: float = 60.0) -> Json:
        """Return a session once it has one of these statuses."""
        found: Json = {}

        async def there() -> bool:
            nonlocal found
            found = await self.session(session_id)
            return found["status"] in statuses

        try:
            await until(there, timeout_s=timeout_s)
        except TimeoutError:
            trace = [e["type"] for e in await self.events(session_id)]
            raise AssertionError(f"not {statuses} but {found}; {trace}") from None
        return found

    async def events(self, session_id: str, after: int = 0) -> list[Json]:
        """Return the whole trace, page by page."""
        events: list[Json] = []
        while True:
            page = await self.get(f"/v1/sessions/{session_id}/events?after={after}&limit=500")
            events += page["data"]
            if page["next"] is None:
                return events
            after = page["next"]

    async def cancel(self, session_id: str) -> Json:
        """Cancel and return the settled session."""
        return await self.post(f"/v1/sessions/{session_id}/cancel", expect=200)

    async def verify(self, session_id: str, call_id: str, outcome: str) -> Json:
        """Say what became of a call."""
        body = {"call_id": call_id, "outcome": outcome}
        return await self.post(f"/v1/sessions/{session_id}/verifications", body, expect=202)

    @asynccontextmanager
    async def stream(
        self, session_id: str, *, last_id: int | None = None
    ) -> AsyncIterator[AsyncIterator[Frame] | None]:
        """Open the stream; None when there is nothing more (204)."""
        headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
        path = f"/v1/sessions/{session_id}/stream"
        async with self.http.stream("GET", path, headers=headers, timeout=60) as response:
            if response.status_code == httpx2.codes.NO_CONTENT:
                yield None
                return
            assert response.status_code == httpx2.codes.OK, response.status_code
            yield self.frames(response)

    @staticmethod
    def frames(response: httpx2.Response) -> AsyncIterator[Frame]:
        """Return the frames of a stream that has been opened."""
        return _frames(response.aiter_lines())


async def _frames(lines: AsyncIterator[str]) -> AsyncIterator[Frame]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            number = fields.get("id")
            seq = None if number is None else int(number)
            yield Frame(fields["event"], seq, json.loads(fields["data"]))
            fields = {}


@dataclass(slots=True)
class Reader:
    """Reads one session to its end, coming back with its last id to whichever process answers.

    `urls` is asked at each connection: a list of addresses, tried in turn, as a balancer would.
    """

    session_id: str
    urls: Callable[[], list[str]]
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0

    @property
    def durable(self) -> list[Frame]:
        """Return the frames that have an id."""
        return [frame for frame in self.frames if frame.seq is not None]

    @property
    def last_id(self) -> int | None:
        """Return the last id that was seen."""
        return max((f.seq for f in self.frames if f.seq is not None), default=None)

    async def run(self, *, timeout_s: float = 60.0) -> None:
        """Return when the server says that there is nothing more."""
        await until(self._read_once, timeout_s=timeout_s, what="the stream ends")

    async def _read_once(self) -> bool:
        for url in self.urls():
            client = Client(url)
            try:
                async with client.stream(self.session_id, last_id=self.last_id) as frames:
                    if frames is None:
                        return True
                    self.connections += 1
                    async for frame in frames:
                        self.frames.append(frame)
            except httpx2.TransportError:
                continue
            finally:
                await client.close()
        return False
