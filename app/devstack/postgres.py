"""An embedded PostgreSQL server on a Unix socket.

The cluster is made once, aside, and renamed into place when it is whole; so a crash while it is
made leaves nothing that a later start would trip over. Durability is real (`fsync`) unless the
caller says that the data may be lost.
"""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from app.devstack.accounts import Account, make_folder, run_as, server_account
from app.devstack.errors import ServerStartError
from app.devstack.lock import folder_lock
from app.devstack.places import (
    cluster_folder,
    postgres_programs,
    prepare_data_folder,
    remove_socket_folder,
    socket_folder,
)
from app.devstack.process import Child, alive, stop_stranger

_USER = "surefoot"
_DATABASE = "surefoot"
_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_START_S = 60.0
_STOP_S = 20.0
_TRIES = 50

# A development machine: one service, many short connections, no replicas.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
# What may be given up when the data may be lost with the machine.
_LOSSY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresHandle:
    """A Postgres server of ours: where it is, and the ways to stop and start it.

    `programs` is the folder with `initdb`, `pg_ctl` and their kin. `dsn` stays the same over
    restarts. `kill` is the crash: SIGKILL to the postmaster, after which `start` recovers.
    """

    def __init__(self, *, data: Path, durable: bool, settings: dict[str, str] | None) -> None:
        """Nothing starts here; `data` is a folder that exists."""
        self._account = server_account(data / "postgres")
        self._cluster = cluster_folder(data, self._account)
        self._account = server_account(self._cluster)
        self.programs = postgres_programs(self._account)
        self._sockets = socket_folder(self._account, _SOCKET + ".lock")
        self._log = data / "postgres.log"
        self._durable = durable
        self._settings = {
            **_SETTINGS,
            **({} if durable else _LOSSY),
            **(settings or {}),
            "unix_socket_directories": str(self._sockets),
        }
        self._child: Child | None = None

    @property
    def dsn(self) -> str:
        """The address of the database `surefoot`, as asyncpg and libpq take it."""
        return self.dsn_for(_DATABASE)

    def dsn_for(self, database: str) -> str:
        """The address of another database of this server."""
        return f"postgresql://{_USER}@/{quote(database)}?host={quote(str(self._sockets))}"

    @property
    def pid(self) -> int:
        """The process id of the postmaster; an error when it is stopped."""
        if self._child is None:
            raise ServerStartError("Postgres is stopped")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster lives."""
        return self._child is not None and self._child.running

    async def start(self) -> None:
        """Start it and return when it takes connections; nothing to do when it runs."""
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """Stop it cleanly: connections are cut, everything is on disk afterwards."""
        await asyncio.to_thread(self._stop)

    async def restart(self) -> None:
        """Stop and start; connections are cut, the address stays."""
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """End it as a crash would; what was committed is there after `start`."""
        await asyncio.to_thread(self._kill)

    async def close(self) -> None:
        """Stop it and remove the sockets' folder; the data stays."""
        await self.stop()
        remove_socket_folder(self._sockets)

    def _start(self) -> None:
        if self.running:
            return
        if not (self._cluster / "PG_VERSION").exists():
            _make_cluster(self._cluster, self.programs, self._account, durable=self._durable)
        sockets = _stop_leftover(self._cluster)
        if sockets is not None and sockets != self._sockets:
            remove_socket_folder(sockets)
        for left in reversed(range(_TRIES)):
            try:
                self._child = self._spawn()
            except ServerStartError as error:
                # After a kill the last backends need a moment to see that their parent is gone.
                if "shared memory block" not in str(error) or not left:
                    raise
            else:
                return

    def _spawn(self) -> Child:
        flags = [f"--{name}={value}" for name, value in self._settings.items()]
        child = Child(
            [self.programs / "postgres", "-D", self._cluster, *flags],
            stop_signal=signal.SIGINT,
            log=self._log,
            cwd=Path("/"),
            folder=self._sockets,
            account=self._account,
        )
        try:
            child.wait_until(lambda: _ready(self._cluster, child.pid), timeout_s=_START_S)
        except BaseException:
            child.stop(timeout_s=_STOP_S)
            raise
        return child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.stop(timeout_s=_STOP_S)
            self._child = None

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


@asynccontextmanager
async def embedded_postgres_server(
    data_dir: Path, *, durable: bool = True, settings: dict[str, str] | None = None
) -> AsyncIterator[PostgresHandle]:
    """Run a Postgres with its data in `data_dir` (made when missing) for the length of the block.

    Args:
        data_dir: The folder; a second process that wants it gets FolderInUseError.
        durable: False switches fsync off: faster, and the data is lost if the machine (not the
            server) crashes.
        settings: Further server settings, such as `{"max_connections": "20"}`.
    """
    data = await asyncio.to_thread(prepare_data_folder, data_dir)
    with folder_lock(data / "postgres.lock"):
        handle = await asyncio.to_thread(
            lambda: PostgresHandle(data=data, durable=durable, settings=settings)
        )
        try:
            await handle.start()
            yield handle
        finally:
            await asyncio.shield(handle.close())


def _make_cluster(cluster: Path, programs: Path, account: Account | None, *, durable: bool) -> None:
    aside = cluster.with_name(cluster.name + ".new")
    if aside.exists():
        shutil.rmtree(aside)
    make_folder(aside, account)
    _must(
        run_as(
            account,
            [
                *(str(programs / "initdb"), "-D", str(aside), "-U", _USER),
                *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                *([] if durable else ["--no-sync"]),
            ],
        )
    )
    single = f'echo "create database {_DATABASE}" | exec "$0" --single -D "$1" postgres'
    _must(run_as(account, ["/bin/sh", "-c", single, str(programs / "postgres"), str(aside)]))
    aside.rename(cluster)


def _must(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise ServerStartError(f"{done.args[4:]} failed: {done.stderr.strip() or done.stdout}")


def _ready(cluster: Path, pid: int) -> bool:
    """Whether this very server says that it takes connections."""
    found = _pid_file(cluster)
    return found is not None and found.pid == pid and found.status == "ready"


@dataclass(frozen=True, slots=True)
class _PidFile:
    """What a running server writes about itself into `postmaster.pid`, line by line."""

    pid: int
    sockets: Path | None
    status: str


def _pid_file(cluster: Path) -> _PidFile | None:
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    first, _data, _start, _port, sockets, _address, _memory, status = (
        line.strip() for line in (*lines, *[""] * 8)[:8]
    )
    if not first.isdigit():
        return None
    return _PidFile(int(first), Path(sockets) if sockets else None, status)


def _stop_leftover(cluster: Path) -> Path | None:
    """Stop the server an earlier process left on this cluster; the folder of its sockets.

    We hold the folder's lock, so a server that runs here belongs to nobody. The pid in the file
    may meanwhile be another program's: only a process that works in this cluster's folder, or
    names it in its command, is stopped.
    """
    found = _pid_file(cluster)
    if found is None:
        return None
    if alive(found.pid) and _works_on(found.pid, cluster):
        stop_stranger(found.pid, signal.SIGINT, timeout_s=_STOP_S)
    elif alive(found.pid):
        (cluster / "postmaster.pid").unlink(missing_ok=True)
    return found.sockets


def _works_on(pid: int, cluster: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
    except OSError:
        shown = subprocess.run(
            ["/bin/ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return str(cluster) in shown.stdout
