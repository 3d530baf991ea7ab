"""The worker process: it runs sessions and serves nothing."""

import asyncio
import signal

import uvloop

from app.bootstrap import open_service, settings_for
from app.settings import Loaded


def serve() -> int:
    """Work until SIGTERM or SIGINT, then hand running sessions over; return the exit code."""
    return uvloop.run(_serve(settings_for("serve")))


async def _serve(loaded: Loaded) -> int:
    async with open_service(loaded, "worker") as service:
        worker = service.worker
        if worker is None:
            return 1

        def stop() -> None:
            service.draining.set()
            worker.drain()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        async with asyncio.TaskGroup() as group:
            background = group.create_task(service.background())
            if await service.wait_for_schema():
                await worker.run()
            background.cancel()
    return 0
