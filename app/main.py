"""The server process: the HTTP API, alone or (`all`) with a worker beside it."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import uvicorn
import uvloop
from typing_extensions import override

from app.bootstrap import Service, open_service
from app.settings import Loaded

STREAMS_END_S = 3


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the process drains before it stops."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(loaded: Loaded, role: Literal["all", "api"]) -> int:
    """Serve until SIGTERM or SIGINT, then drain and return the exit code."""
    return uvloop.run(_serve(loaded, role))


async def _serve(loaded: Loaded, role: Literal["all", "api"]) -> int:
    async with open_service(loaded, role) as service:
        if service.app is None:
            return 1
        config = uvicorn.Config(
            service.app,
            host=loaded.settings.host,
            port=loaded.settings.port,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=STREAMS_END_S,
        )
        await run_until_stopped(service, _Server(config))
    return 0


async def run_until_stopped(service: Service, server: uvicorn.Server) -> None:
    """Run everything this process has until a signal, then drain."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        background = group.create_task(service.background())
        serving = group.create_task(server.serve())
        working = group.create_task(_work(service))
        serving.add_done_callback(lambda _: stop.set())
        await stop.wait()
        service.draining.set()
        if service.worker is not None:
            service.worker.drain()
        server.should_exit = True
        await serving
        await working
        background.cancel()


async def _work(service: Service) -> None:
    if service.worker is not None:
        await service.wait_for_schema()
        await service.worker.run()
