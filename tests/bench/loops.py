"""The bare loops: the same work in one process with nothing kept, over httpx2 or over aiohttp."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import httpx2
import uvloop

from tests.bench.agent import Ask, run
from tests.bench.closed_loop import ClosedLoop, Sample
from tests.bench.work import ANSWER, task

_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer none"}


@asynccontextmanager
async def over_aiohttp(llm: str) -> AsyncIterator[Ask]:
    """Ask over one aiohttp session."""
    url = f"{llm}/chat/completions"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=_HEADERS) as http:

        async def ask(body: bytes) -> AsyncIterator[bytes]:
            async with http.post(url, data=body) as response:
                response.raise_for_status()
                async for line in response.content:
                    yield line

        yield ask


@asynccontextmanager
async def over_httpx2(llm: str) -> AsyncIterator[Ask]:
    """Ask over one httpx2 client."""
    url = f"{llm}/chat/completions"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(headers=_HEADERS, limits=limits, timeout=60) as http:

        async def ask(body: bytes) -> AsyncIterator[bytes]:
            async with http.stream("POST", url, content=body) as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    yield line.encode()

        yield ask


CLIENTS = {"aiohttp": over_aiohttp, "httpx2": over_httpx2}


async def _main(given: argparse.Namespace) -> None:
    words = task(slow=given.slow)
    async with CLIENTS[given.client](given.llm) as ask:

        async def session() -> Sample:
            began = time.perf_counter()
            answer = await run(ask, words)
            if answer != ANSWER:
                raise RuntimeError(f"not the work: {answer!r}")
            took = time.perf_counter() - began
            return Sample(took, took)

        loop = ClosedLoop(
            session, inflight=given.inflight, warmup_s=given.warmup, seconds=given.seconds
        )
        await loop.run()
    loop.tell()


def main() -> None:
    """Run one cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=sorted(CLIENTS), required=True)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--inflight", type=int, default=1)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
