"""How a process ends: the first signal drains, the second does not wait for it."""

import asyncio
import signal
from typing import cast

import uvicorn

from app.bootstrap import Service
from app.bootstrap.running import run_until_stopped


class Busy:
    """A service with a step that does not end, and a server beside it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopping = asyncio.Event()
        self.should_exit = False

    async def background(self) -> None:
        await asyncio.Event().wait()

    async def work(self) -> None:
        self.started.set()
        await asyncio.Event().wait()

    async def serve(self, _sockets: object) -> None:
        await self.stopping.wait()

    def stop(self) -> None:
        self.stopping.set()


async def test_a_second_signal_ends_the_drain() -> None:
    busy = Busy()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        running = group.create_task(
            run_until_stopped(cast("Service", busy), cast("uvicorn.Server", busy), [])
        )
        await busy.started.wait()
        signal.raise_signal(signal.SIGINT)
        await busy.stopping.wait()
        assert not running.done()
        signal.raise_signal(signal.SIGINT)
        await running
