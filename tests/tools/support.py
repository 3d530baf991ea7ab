"""A raw HTTP server on the loopback, a fixed clock, and short ways to make tools and calls."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.faults import Fault
from app.core.toolbox import ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import ToolReply, ToolRequest
from app.tools.builtin import Builtins
from app.tools.definition import parse
from app.tools.egress import EgressGuard, Resolver, networks, system_resolver
from app.tools.http import HttpTools
from app.tools.runner import Tools

NOW_US = 1_700_000_000_000_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


_TLS = ssl.create_default_context()  # made once: reading the certificates takes a while


class FixedClock:
    """A clock that stands still."""

    def now_us(self) -> int:
        return NOW_US

    def boot_s(self) -> float:
        return 0.0

    def entropy(self, size: int) -> bytes:
        return bytes(size)

    def jitter(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


Handler = Callable[[Seen, asyncio.StreamWriter], Awaitable[None] | None]


@dataclass(slots=True)
class Server:
    """A server, what it has seen, and the tasks of its connections."""

    handler: Handler
    port: int = 0
    scheme: str = "http"
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while not writer.is_closing():
                seen = await _read(reader)
                self.seen.append(seen)
                waited = self.handler(seen, writer)
                if waited is not None:
                    await waited
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()
            self.tasks.discard(task)


@asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """Serve on a free port; the handler writes raw answers."""
    server = Server(handler, scheme="https" if tls else "http")
    listening = await asyncio.start_server(server.connected, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(server.tasks):
            task.cancel()
        if server.tasks:
            await asyncio.wait(list(server.tasks))


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, target, headers, body)


def raw(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return a whole HTTP answer."""
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    named.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1") + body


def answering(*answers: bytes) -> Handler:
    """Return a handler that gives these answers in turn, the last one for ever."""
    left = list(answers)

    def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return handle


def json_answer(text: str) -> bytes:
    return raw(200, text.encode(), content_type="application/json")


def tool(
    url: str,
    *,
    method: str = "GET",
    effect: str = "read",
    properties: Sequence[str] | Mapping[str, Json] = (),
    max_chars: int = 2000,
    **http: Json,
) -> ToolSpec:
    """Return an HTTP tool; parameters may be given by name alone."""
    declared: dict[str, Json] = (
        dict(properties) if isinstance(properties, Mapping) else {name: {} for name in properties}
    )
    body: dict[str, Json] = {
        "name": "probe",
        "kind": "http",
        "description": "Probe a server, for tests. Returns what it says.",
        "parameters": {"type": "object", "properties": declared},
        "http": {"method": method, "url": url, **http},
        "effect": effect,
        "result": {"max_chars": max_chars},
    }
    return parse(body).spec


@asynccontextmanager
async def tools_for(
    *,
    allow: str = "127.0.0.0/8",
    resolver: Resolver = system_resolver,
    secrets: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Tools]:
    """Return the real adapter, allowed to reach the loopback."""
    guard = EgressGuard(allow=networks(allow), resolver=resolver)
    clock = FixedClock()
    http = HttpTools(
        guard=guard, secrets=secrets or {}, clock=clock, version="9.9", tls=tls or _TLS
    )
    tools = Tools(http=http, builtins=Builtins(clock))
    try:
        yield tools
    finally:
        await tools.aclose()


def call(spec: ToolSpec, timeout_s: float = 5.0, **arguments: Json) -> ToolRequest:
    return ToolRequest("default", spec, arguments, "ses_1:t1_c1_0", TRACE, timeout_s)


async def run(tools: Tools, spec: ToolSpec, timeout_s: float = 5.0, **arguments: Json) -> ToolReply:
    return await tools.run(call(spec, timeout_s, **arguments))


async def fault(tools: Tools, spec: ToolSpec, timeout_s: float = 5.0, **arguments: Json) -> Fault:
    """Return the fault with which a call fails."""
    try:
        reply = await run(tools, spec, timeout_s, **arguments)
    except ToolFailure as failure:
        return failure.fault
    raise AssertionError(reply)


ONCE = EffectClass.ONCE.value
