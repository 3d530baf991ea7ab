"""A process from its first to its last moment: it serves and works until a signal, then drains.

SIGTERM ──► not ready, streams end, nothing new is claimed
        ──► running steps reach a boundary or are released (SUREFOOT_DRAIN_S)
        ──► the listener closes, after SUREFOOT_LINGER_S at the earliest
        ──► the lease ends
second signal ──► what still drains is cut; its sessions are taken over like after a kill
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

import uvicorn
from typing_extensions import override

from app.api.app import Application
from app.api.connection import bounded_door
from app.bootstrap.service import Service

STREAMS_END_S: Final = 3
CUT_S: Final = 1.0


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the process drains before it stops."""

    greeting: str | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and self.greeting is not None:
            sys.stdout.write(self.greeting)
            sys.stdout.flush()

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(app: Application, most_connections: int) -> Server:
    """Return a server for an application."""
    config = uvicorn.Config(
        app,
        http=bounded_door(most_connections),
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=4096,
        timeout_graceful_shutdown=STREAMS_END_S,
    )
    return Server(config)


async def run_until_stopped(
    service: Service, server: uvicorn.Server | None, sockets: list[socket.socket]
) -> None:
    """Run everything this process has until a signal, then drain; a second one ends the drain."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    spared = asyncio.all_tasks()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    async with asyncio.TaskGroup() as group:
        background = group.create_task(service.background())
        working = group.create_task(service.work())
        tasks = [working]
        if server is None:
            working.add_done_callback(lambda _: stop.set())
        else:
            serving = group.create_task(server.serve(sockets))
            serving.add_done_callback(lambda _: stop.set())
            tasks.append(serving)
        await stop.wait()
        service.stop()
        closing = group.create_task(_close_after(service, working, server))
        hurrying = group.create_task(_cut_short(hurry, spared))
        await asyncio.wait(tasks)
        closing.cancel()
        hurrying.cancel()
        background.cancel()


async def _close_after(
    service: Service, working: asyncio.Task[None], server: uvicorn.Server | None
) -> None:
    """Keep answering while the worker drains: that is when others ask whether we are ready."""
    if server is None:
        return
    began = asyncio.get_running_loop().time()
    await asyncio.wait([working])
    if service.app is not None:
        left_s = began + service.settings.linger_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, left_s))
    server.should_exit = True


async def _cut_short(hurry: asyncio.Event, spared: AbstractSet[asyncio.Task[object]]) -> None:
    """End what still drains at the second signal; its sessions are taken over like after a kill.

    What a task does about its end may hang as well, on a database that is stopped: it is cut again.
    Each task by itself, since a group that ends passes on no further cancellation to its own.
    """
    await hurry.wait()
    kept = spared | {asyncio.current_task()}
    while True:
        for task in asyncio.all_tasks() - kept:
            task.cancel()
        await asyncio.sleep(CUT_S)
