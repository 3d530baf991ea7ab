"""An embedded Valkey server on a Unix socket, without persistence.

It holds copies only (hot state, live fan-out, counters), so what it held is gone after `stop` or
`kill`, and everybody who uses it must live with that; the tests use these two to see that they do.
"""

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from typing_extensions import override

from app.devstack.handle import ServerHandle, made
from app.devstack.places import socket_folder, valkey_program
from app.devstack.process import Child

_SOCKET = "valkey.sock"
_START_S = 20.0
_STOP_S = 10.0


class ValkeyHandle(ServerHandle):
    """A Valkey server of ours; `url` stays the same over stop and start, the contents do not."""

    def __init__(self, *, log: Path | None = None) -> None:
        """Nothing starts here; without `log` the log lies beside the socket."""
        sockets = socket_folder(None, _SOCKET)
        super().__init__(
            name="Valkey", sockets=sockets, log=log or sockets / "valkey.log", stop_s=_STOP_S
        )

    @property
    def url(self) -> str:
        """The address, as redis-py takes it."""
        return f"unix://{self._sockets / _SOCKET}"

    @override
    def _spawn(self) -> Child:
        path = self._sockets / _SOCKET
        path.unlink(missing_ok=True)
        child = Child(
            [
                *(valkey_program(), "--port", "0", "--unixsocket", path),
                *("--unixsocketperm", "700", "--save", "", "--appendonly", "no"),
                *("--daemonize", "no", "--dir", self._sockets, "--maxclients", "2000"),
            ],
            stop_signal=signal.SIGTERM,
            log=self.log,
            cwd=self._sockets,
            folder=self._sockets,
        )
        return child.started(lambda: _answers(path), start_s=_START_S, stop_s=_STOP_S)


@asynccontextmanager
async def embedded_valkey_server(*, log: Path | None = None) -> AsyncIterator[ValkeyHandle]:
    """Run an empty Valkey for the length of the block."""
    handle = await made(lambda: ValkeyHandle(log=log))
    try:
        await handle.start()
        yield handle
    finally:
        await handle.close()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(os.fspath(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
