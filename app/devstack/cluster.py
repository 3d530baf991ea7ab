"""The folder of a Postgres cluster: making it, and reading what a server left in it."""

import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from app.devstack.accounts import Account, make_folder, run_as
from app.devstack.errors import ServerStartError
from app.devstack.process import alive, stop_stranger

USER = "surefoot"
DATABASE = "surefoot"
_STOP_S = 20.0


def make_cluster(cluster: Path, programs: Path, account: Account | None, *, durable: bool) -> None:
    """Make it, with the database in it, aside, and rename it into place when it is whole."""
    aside = cluster.with_name(cluster.name + ".new")
    if aside.exists():
        shutil.rmtree(aside)
    make_folder(aside, account)
    initdb = [
        *(str(programs / "initdb"), "-D", str(aside), "-U", USER),
        *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"),
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *([] if durable else ["--no-sync"]),
    ]
    single = f'echo "create database {DATABASE}" | exec "$0" --single -D "$1" postgres'
    createdb = ["/bin/sh", "-c", single, str(programs / "postgres"), str(aside)]
    for command in (initdb, createdb):
        done = run_as(account, command)
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise ServerStartError(f"{command[0]} failed: {said}")
    aside.rename(cluster)


@dataclass(frozen=True, slots=True)
class PidFile:
    """What a running server writes about itself into `postmaster.pid`."""

    pid: int  # line 1
    sockets: Path | None  # line 5: the folder of its sockets
    status: str  # line 8: "ready" when it takes connections


def read_pid_file(cluster: Path) -> PidFile | None:
    """The file of this cluster; None when there is none or it is not whole yet."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    first, _data, _start, _port, sockets, _address, _memory, status = (
        line.strip() for line in (*lines, *[""] * 8)[:8]
    )
    if not first.isdigit():
        return None
    return PidFile(int(first), Path(sockets) if sockets else None, status)


def stop_leftover(cluster: Path) -> Path | None:
    """Stop the server an earlier process left on this cluster; the folder of its sockets.

    The caller holds the cluster's lock, so a server that runs here belongs to nobody. The pid in
    the file may meanwhile be another program's: only a process that works in this cluster's folder,
    or names it in its command, is stopped.
    """
    found = read_pid_file(cluster)
    if found is None:
        return None
    if alive(found.pid) and _works_on(found.pid, cluster):
        stop_stranger(found.pid, signal.SIGINT, timeout_s=_STOP_S)
    elif alive(found.pid):
        # Postgres would take that program for a server of this cluster and refuse to start.
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
