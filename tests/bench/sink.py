"""A collector that takes everything and keeps nothing: `python -m tests.bench.sink --port 0`."""

import argparse
import asyncio
import signal
from collections.abc import Iterable

from tests.scripted.http import Request, Server, Step, response


def _take(_request: Request) -> Iterable[Step]:
    return (response(200, b"", content_type="application/x-protobuf"),)


async def _serve(port: int) -> None:
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    async with Server(_take, port=port) as server:
        print(server.root, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(_serve(parser.parse_args().port))
