"""The load: a process that creates sessions over HTTP, follows them, and checks each of them."""

import argparse
import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import uvloop

from tests.bench.closed_loop import ClosedLoop, Sample
from tests.bench.work import ANSWER, MODEL_CALLS, TOOL_CALLS, task

_decode = msgspec.json.Decoder().decode
_OK = {200, 201}


class WrongError(Exception):
    """A session that did not do the work."""


class Driver:
    """Creates sessions at one service and waits for each, by `Prefer: wait` or by its stream."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, body: dict[str, Any], *, events: int
    ) -> None:
        """Keep what every session has in common; the body's bytes are made once."""
        self._http = http
        self._url = f"{url}/v1/sessions"
        self._body = msgspec.json.encode(body)
        self._events = events

    async def waited(self) -> Sample:
        """Run a session and take its end as the answer to the POST."""
        began = time.perf_counter()
        headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
        async with self._http.post(self._url, data=self._body, headers=headers) as response:
            raw = await response.read()
        took = time.perf_counter() - began
        if response.status not in _OK:
            raise WrongError(f"{response.status}: {raw[:500]!r}")
        session = _decode(raw)
        usage = session["usage"]
        done = session["status"], (session["result"] or {}).get("text")
        calls = usage["model_calls"], usage["tool_calls"]
        if done != ("completed", ANSWER) or calls != (MODEL_CALLS, TOOL_CALLS):
            raise WrongError(f"not the work: {raw[:1000]!r}")
        return Sample(took, took)

    async def streamed(self) -> Sample:
        """Run a session and read its stream to the end."""
        began = time.perf_counter()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        first = 0.0
        stream = bytearray()
        async with self._http.post(self._url, data=self._body, headers=headers) as response:
            async for data in response.content.iter_any():
                stream += data
                if not first and b"data:" in stream:
                    first = time.perf_counter() - began
        took = time.perf_counter() - began
        self._check(response.status, bytes(stream))
        return Sample(took, first)

    def _check(self, status: int, stream: bytes) -> None:
        if status not in _OK:
            raise WrongError(f"{status}: {stream[:500]!r}")
        events = stream.count(b"\nid:") + stream.startswith(b"id:")
        last = stream[stream.rfind(b"turn.ended") :]
        if events != self._events or ANSWER.encode() not in last or b"completed" not in last:
            raise WrongError(f"{events} events, not {self._events}; the end: {stream[-1000:]!r}")


async def _main(given: argparse.Namespace) -> None:
    body: dict[str, Any] = {"task": task(slow=given.slow, over_http=given.over_http)}
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        driver = Driver(http, given.url, body, events=given.events)
        loop = ClosedLoop(
            driver.streamed if given.stream else driver.waited,
            inflight=given.inflight,
            warmup_s=given.warmup,
            seconds=given.seconds,
        )
        await loop.run()
    loop.tell()


def main() -> None:
    """Run one cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--over-http", action="store_true")
    parser.add_argument("--inflight", type=int, default=1)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
