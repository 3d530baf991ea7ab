"""A scripted OpenAI-compatible endpoint on a real socket, strict about the history it is sent.

In a test:

    async with ScriptedModel([call("echo", text="hi"), text("done")]) as model:
        ... model.base_url, model.requests, model.violations

As a process: `python -m tests.scripted.model --port 0 --script five_plus_four [--delay-ms 20]`;
the first line it prints is its base URL.
"""

import argparse
import asyncio
import json
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from tests.scripted.answers import Answer, delayed, error
from tests.scripted.history import Body, Invalid, check
from tests.scripted.http import Request, Server, Step, response
from tests.scripted.scripts import SCRIPTS, Script

_loads = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Seen:
    """One request of the service."""

    headers: dict[str, str]
    body: Body
    raw: bytes

    @property
    def messages(self) -> list[Body]:
        """Its messages."""
        messages: list[Body] = self.body["messages"]
        return messages

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools it offers."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


class ScriptedModel:
    """The endpoint. A list is given out in order; a callable decides by (request, n from 1).

    A request that a strict provider would refuse is answered 400 and kept in `violations`; so is
    one beyond the end of a list. Leaving the block then fails, unless `strict` is off.
    """

    def __init__(
        self,
        script: Sequence[Answer] | Script,
        *,
        port: int = 0,
        strict: bool = True,
        keep_requests: bool = True,
    ) -> None:
        self._script = script
        self._strict = strict
        self._keep = keep_requests
        self._server = Server(self._handle, port=port)
        self._arrived = asyncio.Event()
        self.count = 0
        self.requests: list[Seen] = []
        self.violations: list[str] = []

    @property
    def base_url(self) -> str:
        """What `SUREFOOT_LLM_BASE_URL` is set to."""
        return f"{self._server.root}/v1"

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._server.accepted

    @property
    def bodies(self) -> list[Body]:
        """The JSON of each request."""
        return [seen.body for seen in self.requests]

    async def asked(self, times: int = 1) -> None:
        """Return once this many requests have come."""
        while self.count < times:
            self._arrived.clear()
            await self._arrived.wait()

    async def dropped(self) -> None:
        """Return once a client went away in the middle of an answer."""
        await self._server.dropped.wait()

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
        if self._strict and problem is None and self.violations:
            raise AssertionError(f"requests out of order: {self.violations}")

    def _handle(self, request: Request) -> Iterable[Step]:
        if request.method == "GET" and request.path.endswith("/models"):
            return (response(200, b'{"object":"list","data":[]}'),)
        if request.method != "POST" or request.path != "/v1/chat/completions":
            return (response(404, b'{"error":{"message":"no such path"}}'),)
        self.count += 1
        self._arrived.set()
        try:
            body: Body = _loads(request.body)
            if self._keep:
                self.requests.append(Seen(request.headers, body, request.body))
            check(body, _loads)
            return self._next(body).steps(body)
        except (Invalid, KeyError, TypeError, ValueError) as problem:
            self.violations.append(f"request {self.count}: {problem!r}")
            return error(400, str(problem), type="invalid_request_error").steps({})

    def _next(self, body: Body) -> Answer:
        if callable(self._script):
            return self._script(body, self.count)
        if self.count > len(self._script):
            raise Invalid(f"the script has only {len(self._script)} answers")
        return self._script[self.count - 1]


def _with_delay(script: Script, delay_s: float) -> Script:
    return lambda request, n: delayed(delay_s, script(request, n))


async def _serve(port: int, script: Script, delay_s: float) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    chosen = _with_delay(script, delay_s) if delay_s else script
    async with ScriptedModel(chosen, port=port, strict=False, keep_requests=False) as model:
        print(model.base_url, flush=True)
        await stop.wait()
        summary = {"requests": model.count, "violations": model.violations[:5]}
        print(json.dumps(summary), flush=True)


def main() -> None:
    """Run the endpoint until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="plain")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(_serve(given.port, SCRIPTS[given.script], given.delay_ms / 1000))


if __name__ == "__main__":
    main()
