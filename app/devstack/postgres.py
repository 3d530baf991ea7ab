"""An embedded PostgreSQL server on a Unix socket.

Durability is real (`fsync`) unless the caller says that the data may be lost with the machine.
"""

import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from typing_extensions import override

from app.devstack.accounts import server_account
from app.devstack.cluster import DATABASE, USER, make_cluster, read_pid_file, stop_leftover
from app.devstack.errors import ServerStartError
from app.devstack.handle import ServerHandle, made
from app.devstack.lock import folder_lock
from app.devstack.places import (
    cluster_folder,
    earlier_clusters,
    postgres_programs,
    prepare_data_folder,
    remove_socket_folder,
    socket_folder,
)
from app.devstack.process import Child

_LONGEST_SOCKET = ".s.PGSQL.5432.lock"
_START_S = 60.0
_STOP_S = 20.0
# After a kill the last backends need a moment to see that their parent is gone.
_BACKENDS_GONE_S = 10.0

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


class PostgresHandle(ServerHandle):
    """A Postgres server of ours: where it is, and the ways to stop and start it.

    `dsn` stays the same over restarts. After `kill`, `start` recovers what was committed. `cluster`
    is the folder of the data, `programs` that of `initdb`, `pg_ctl` and their kin; `unused` are
    clusters of earlier data folders at this path, which stay as they are.
    """

    def __init__(self, *, data: Path, durable: bool, settings: Mapping[str, str]) -> None:
        """Nothing starts here; `data` is a folder that exists."""
        self.cluster = cluster_folder(data)
        self.unused = earlier_clusters(data, self.cluster)
        self._account = server_account(self.cluster)
        self.programs = postgres_programs(self._account)
        self._durable = durable
        super().__init__(
            name="Postgres",
            sockets=socket_folder(self._account, _LONGEST_SOCKET),
            log=data / "postgres.log",
            stop_s=_STOP_S,
        )
        own = {"unix_socket_directories": str(self._sockets)}
        self._settings = {**_SETTINGS, **({} if durable else _LOSSY), **settings, **own}

    @property
    def dsn(self) -> str:
        """The address of the database `surefoot`, as asyncpg and libpq take it."""
        return self.dsn_for(DATABASE)

    def dsn_for(self, database: str) -> str:
        """The address of another database of this server."""
        return f"postgresql://{USER}@/{quote(database)}?host={quote(str(self._sockets))}"

    @override
    def _spawn(self) -> Child:
        if not (self.cluster / "PG_VERSION").exists():
            make_cluster(self.cluster, self.programs, self._account, durable=self._durable)
        sockets = stop_leftover(self.cluster)
        if sockets is not None and sockets != self._sockets:
            remove_socket_folder(sockets)
        deadline = time.monotonic() + _BACKENDS_GONE_S
        while True:
            try:
                return self._spawn_once()
            except ServerStartError as error:
                if "shared memory block" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _spawn_once(self) -> Child:
        flags = [f"--{name}={value}" for name, value in self._settings.items()]
        child = Child(
            [self.programs / "postgres", "-D", self.cluster, *flags],
            stop_signal=signal.SIGINT,
            log=self.log,
            cwd=Path("/"),
            folder=self._sockets,
            account=self._account,
        )
        return child.started(lambda: self._ready(child.pid), start_s=_START_S, stop_s=_STOP_S)

    def _ready(self, pid: int) -> bool:
        """Whether this very process says that it takes connections."""
        found = read_pid_file(self.cluster)
        return found is not None and found.pid == pid and found.status == "ready"


@asynccontextmanager
async def embedded_postgres_server(
    data_dir: Path, *, durable: bool = True, settings: Mapping[str, str] | None = None
) -> AsyncIterator[PostgresHandle]:
    """Run a Postgres with its data in `data_dir` (made when missing) for the length of the block.

    Args:
        data_dir: The folder; a second process that wants it gets FolderInUseError.
        durable: False switches fsync off: faster, and the data is lost if the machine (not the
            server) crashes.
        settings: Further server settings, such as `{"max_connections": "20"}`.
    """

    def prepare() -> PostgresHandle:
        data = prepare_data_folder(data_dir)
        return PostgresHandle(data=data, durable=durable, settings=settings or {})

    handle = await made(prepare)
    try:
        # Beside the cluster, which may lie elsewhere and be named by copies of the data folder too.
        with folder_lock(handle.cluster.with_name(handle.cluster.name + ".lock")):
            try:
                await handle.start()
                yield handle
            finally:
                await handle.stop()
    finally:
        await handle.close()
