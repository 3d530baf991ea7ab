"""An embedded Valkey server on a Unix socket, without persistence.

It holds copies only (hot state, live fan-out, counters), so what it held is gone after `stop` or
`kill`, and everybody who uses it must live with that; the tests use these two to see that they
do.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.devstack.errors import ServerStartError
from app.devstack.places import remove_socket_folder, socket_folder, valkey_program
from app.devstack.process import Child

_SOCKET = "valkey.sock"
_START_S = 20.0
_STOP_S = 10.0


class ValkeyHandle:
    """A Valkey server of ours; `url` stays the same over stop and start, the contents do not."""

    def __init__(self, *, log: Path | None = None) -> None:
        """Nothing starts here; without `log` the log lies beside the socket."""
        self._folder = socket_folder(None, _SOCKET)
        self._log = log or self._folder / "valkey.log"
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The address, as redis-py takes it."""
        return f"unix://{self._folder / _SOCKET}"

    @property
    def pid(self) -> int:
        """The process id of the server; an error when it is stopped."""
        if self._child is None:
            raise ServerStartError("Valkey is stopped")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server lives."""
        return self._child is not None and self._child.running

    async def start(self) -> None:
        """Start it and return when it answers; nothing to do when it runs."""
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """Stop it; connections are cut, the contents are gone."""
        await asyncio.to_thread(self._stop)

    async def restart(self) -> None:
        """Stop and start it: an empty server at the same address."""
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """End it with SIGKILL."""
        await asyncio.to_thread(self._kill)

    async def close(self) -> None:
        """Stop it and remove the socket's folder."""
        await self.stop()
        remove_socket_folder(self._folder)

    def _start(self) -> None:
        if self.running:
            return
        path = self._folder / _SOCKET
        path.unlink(missing_ok=True)
        child = Child(
            [
                *(valkey_program(), "--port", "0", "--unixsocket", path),
                *("--unixsocketperm", "700", "--save", "", "--appendonly", "no"),
                *("--daemonize", "no", "--dir", self._folder, "--maxclients", "2000"),
            ],
            stop_signal=signal.SIGTERM,
            log=self._log,
            cwd=self._folder,
            folder=self._folder,
        )
        try:
            child.wait_until(lambda: _answers(path), timeout_s=_START_S)
        except BaseException:
            child.stop(timeout_s=_STOP_S)
            raise
        self._child = child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.stop(timeout_s=_STOP_S)
            self._child = None

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


@asynccontextmanager
async def embedded_valkey_server(*, log: Path | None = None) -> AsyncIterator[ValkeyHandle]:
    """Run an empty Valkey for the length of the block."""
    handle = await asyncio.to_thread(lambda: ValkeyHandle(log=log))
    try:
        await handle.start()
        yield handle
    finally:
        await asyncio.shield(handle.close())


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(os.fspath(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
