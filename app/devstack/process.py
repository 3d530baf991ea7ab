"""One child process that cannot outlive us.

The child runs in a session of its own, so that a Ctrl-C in the terminal reaches us alone and we
stop it when we no longer need it. Beside it a small shell waits on a pipe from us. When we end
without having said goodbye (SIGTERM, kill -9) the pipe closes and the shell sends the child its
stop signal.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from app.devstack.accounts import Account
from app.devstack.errors import ServerStartError

_POLL_S = 0.01
_LOG_TAIL = 2000
_LOG_MAX = 4_000_000

# $1 is the stop signal, $2 the folder of the sockets, the rest the command. `$$` is the shell that
# becomes the child by exec. The watcher is a grandchild, so that the child never has to reap it. A
# line on the pipe disarms it; the end of the pipe fires it: it stops the child and tidies up.
_WATCHED = """
sign=$1 folder=$2; shift 2
exec 3<&0 </dev/null
watch() {
    read -r _ <&3 && return
    kill -s "$sign" $$
    while kill -0 $$; do sleep 0.1; done
    rm -rf -- "$folder"
}
( watch >/dev/null 2>&1 & )
exec 3<&-
exec "$@"
"""


class Child:
    """A started server process and its log file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        stop_signal: signal.Signals,
        log: Path,
        cwd: Path,
        folder: Path,
        account: Account | None = None,
    ) -> None:
        """Start `command`.

        Args:
            command: The program with its arguments.
            stop_signal: What makes it end in an orderly way.
            log: What it prints is appended here; the file is opened by us, not by the account.
            cwd: Its working folder.
            folder: The folder of its sockets, which goes with it when we end before it does.
            account: Under whom it runs; None = under us.
        """
        self._stop_signal = stop_signal
        self._log = log
        name = stop_signal.name.removeprefix("SIG")
        _rotate(log)
        with log.open("ab") as out:
            self._log_from = out.tell()
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", name, folder, *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=cwd,
                start_new_session=True,
                env=_environment(),
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )

    @property
    def pid(self) -> int:
        """The process id of the server itself (the shell has become it)."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def started(self, ready: Callable[[], bool], *, start_s: float, stop_s: float) -> Self:
        """Return when `ready()` holds; stop it and raise when it ends first or takes too long."""
        try:
            self._wait(ready, time.monotonic() + start_s)
        except BaseException:
            self.stop(timeout_s=stop_s)
            raise
        return self

    def _wait(self, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            if not self.running:
                raise ServerStartError(f"ended with {self._process.returncode}: {self._said()}")
            if time.monotonic() > deadline:
                raise ServerStartError(f"not ready in time: {self._said()}")
            time.sleep(_POLL_S)

    def stop(self, *, timeout_s: float) -> None:
        """Send the stop signal and wait; after `timeout_s` kill it. Harmless when it has ended."""
        if self.running:
            self._process.send_signal(self._stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would, and reap it. Harmless when it has ended."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._disarm()

    def _disarm(self) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(b"\n")
                pipe.flush()
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            said = log.read().decode(errors="replace").strip()
        return said[-_LOG_TAIL:] or "(it said nothing)"


def stop_stranger(pid: int, sign: signal.Signals, *, timeout_s: float) -> None:
    """Stop a process that is not our child: `sign`, and SIGKILL after `timeout_s`."""
    for which in (sign, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)
        deadline = time.monotonic() + timeout_s
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not alive(pid):
            return
    raise ServerStartError(f"process {pid} could not be stopped")


def alive(pid: int) -> bool:
    """Whether a process of this id runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not stat.parent.parent.joinpath("self").exists()


def _rotate(log: Path) -> None:
    """Keep at most two logs of some megabytes."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_MAX:
            log.replace(log.with_name(log.name + ".1"))


def _environment() -> dict[str, str]:
    """The environment of the children: a path, and the same locale on every machine."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
