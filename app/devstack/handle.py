"""What the handles of both servers have in common: start, stop, restart, kill, one at a time.

The work is done in threads under a lock, not on the event loop. So a server started in one loop can
be stopped in another, and a start whose task was cancelled is over before the stop that follows.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from app.devstack.errors import ServerStartError
from app.devstack.places import remove_socket_folder
from app.devstack.process import Child


class ServerHandle(ABC):
    """A server of ours. Its address stays the same as long as the handle is not closed.

    `log` is the file with what the server prints.
    """

    def __init__(self, *, name: str, sockets: Path, log: Path, stop_s: float) -> None:
        """Nothing starts here; `sockets` is the folder that goes when the handle is closed."""
        self.log = log
        self._name = name
        self._sockets = sockets
        self._stop_s = stop_s
        self._child: Child | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id of the server; an error when it is stopped."""
        if self._child is None:
            raise ServerStartError(f"{self._name} is stopped")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child is not None and self._child.running

    async def start(self) -> None:
        """Start it and return when it answers; nothing to do when it runs."""
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """Stop it in an orderly way; its connections are cut."""
        await asyncio.to_thread(self._stop)

    async def restart(self) -> None:
        """Stop and start it."""
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        await asyncio.to_thread(self._kill)

    async def close(self) -> None:
        """Stop it for good and remove the sockets' folder; a cancellation does not cut it short."""
        await asyncio.shield(asyncio.to_thread(self._close))

    @abstractmethod
    def _spawn(self) -> Child:
        """Start the process and wait until it answers."""

    def _start(self) -> None:
        with self._lock:
            if not self.running:
                self._child = self._spawn()

    def _stop(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.stop(timeout_s=self._stop_s)
                self._child = None

    def _kill(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None

    def _close(self) -> None:
        self._stop()
        remove_socket_folder(self._sockets)


_Handle = TypeVar("_Handle", bound=ServerHandle)


async def made(make: Callable[[], _Handle]) -> _Handle:
    """Make a handle in a thread; when cancelled meanwhile, take apart what the thread made."""
    making = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        handle = await making
        await handle.close()
        raise
