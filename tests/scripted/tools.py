"""A server of HTTP tools on a real socket which counts what was delivered, by idempotency key.

    async with ScriptedTools() as tools:
        hold = tools.hold_after("create_reminder")   # the effect is done, the answer waits
        ... tools.specs() are bodies for POST /v1/tools; tools.effects, tools.deliveries

As a process: `python -m tests.scripted.tools --port 0` prints its root, `GET /_seen` its counts.
"""

import argparse
import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.scripted.http import Hold, Request, Server, Step, response


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request that reached a tool."""

    tool: str
    key: str
    arguments: dict[str, Any]
    headers: dict[str, str]


class ScriptedTools:
    """The server. `effects` counts real effects by key; a key seen before has none again."""

    def __init__(self, *, port: int = 0) -> None:
        self._server = Server(self._handle, port=port)
        self._before: dict[str, Hold] = {}
        self._after: dict[str, Hold] = {}
        self._arrived = asyncio.Event()
        self.received: list[Delivery] = []
        self.deliveries: Counter[str] = Counter()
        self.effects: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()

    @property
    def root(self) -> str:
        """The address."""
        return self._server.root

    def hold_before(self, tool: str) -> Hold:
        """Stop this tool's calls before they have an effect."""
        return self._before.setdefault(tool, Hold())

    def hold_after(self, tool: str) -> Hold:
        """Stop this tool's calls after the effect, before the answer."""
        return self._after.setdefault(tool, Hold())

    def status_check(self) -> dict[str, Any]:
        """Return the `status_check` of a tool here; `asked` counts its questions by key."""
        return {"url": f"{self.root}/status/{{idempotency_key}}"}

    async def called(self, times: int = 1) -> None:
        """Return once this many calls have come."""
        while len(self.received) < times:
            self._arrived.clear()
            await self._arrived.wait()

    async def dropped(self) -> None:
        """Return once a client went away in the middle of a call."""
        await self._server.dropped.wait()

    def specs(self) -> list[dict[str, Any]]:
        """Return the tools as `POST /v1/tools` takes them."""
        return [
            _spec(self.root, "get_weather", "GET", "/weather/{city}", "read", "city", "date"),
            _spec(
                self.root, "create_reminder", "POST", "/reminders", "once", "title", "time", "text"
            ),
            _spec(self.root, "slow", "POST", "/slow", "read", "sec"),
            _spec(self.root, "boom", "POST", "/boom", "read"),
            _spec(self.root, "echo", "POST", "/echo", "read", "text"),
            _spec(self.root, "pay", "POST", "/pay", "once", "amount"),
        ]

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.__aexit__(kind, problem, trace)

    def _handle(self, request: Request) -> Iterable[Step]:
        parts = urlsplit(request.path)
        first, _, rest = parts.path.strip("/").partition("/")
        if first in {"_seen", "status"}:
            return (self._report(first, unquote(rest)),)
        tool = {"weather": "get_weather", "reminders": "create_reminder"}.get(first, first)
        arguments = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if request.body:
            arguments |= json.loads(request.body)
        if rest:
            arguments["path"] = unquote(rest)
        key = request.headers.get("idempotency-key", "")
        self.received.append(Delivery(tool, key, arguments, request.headers))
        self.deliveries[key] += 1
        self._arrived.set()
        return self._answer(tool, key, arguments)

    def _answer(self, tool: str, key: str, arguments: dict[str, Any]) -> Iterator[Step]:
        if tool in self._before:
            yield self._before[tool]
        if tool == "slow" and tool not in self._before:
            yield Hold()
        status, output = _output(tool, arguments)
        if tool in {"create_reminder", "pay"}:
            output = self.effects.setdefault(key, {**output, "number": len(self.effects) + 1})
        if tool in self._after:
            yield self._after[tool]
        yield response(status, json.dumps(output, ensure_ascii=False).encode())

    def _report(self, what: str, key: str) -> bytes:
        if what == "status":
            report: dict[str, Any] = {"happened": key in self.effects}
            if key in self.effects:
                report["output"] = self.effects[key]
            self.asked[key] += 1
        else:
            report = {"deliveries": dict(self.deliveries), "effects": self.effects}
        return response(200, json.dumps(report).encode())


def _output(tool: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    match tool:
        case "get_weather":
            return 200, {"city": arguments.get("path"), "temp": 31, "rain": True}
        case "create_reminder" | "pay" | "slow":
            return 200, {"ok": True}
        case "echo":
            return 200, {"text": arguments.get("text")}
        case "boom":
            return 500, {"error": "boom"}
        case "code":
            return int(arguments.get("path", "500")), {"error": "as asked"}
        case _:
            return 404, {"error": f"no tool {tool}"}


def _spec(
    root: str, name: str, method: str, path: str, effect: str, *parameters: str
) -> dict[str, Any]:
    kinds = {"sec": "number", "amount": "number"}
    properties = {p: {"type": kinds.get(p, "string")} for p in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {
        "name": name,
        "kind": "http",
        "description": f"The scripted tool {name}.",
        "parameters": schema,
        "http": {"method": method, "url": root + path},
        "effect": effect,
    }


async def _serve(port: int) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with ScriptedTools(port=port) as tools:
        print(tools.root, flush=True)
        await stop.wait()


def main() -> None:
    """Run the tools until they are told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
