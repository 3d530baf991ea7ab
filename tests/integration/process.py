"""Processes of the service, seen from a test: made by a nursery or from nothing, then signalled."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
Role = Literal["all", "api", "worker"]


class Nursery:
    """The handle of `tests.integration.nursery`; one a test run, used from any loop."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.integration.nursery"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._ids = itertools.count(1)
        self._asked: dict[int, Future[tuple[int, Future[int]]]] = {}
        self._ends: dict[int, Future[int]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="nursery", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._lock:
                if "ended" in told:
                    self._ends.pop(told["ended"]).set_result(told["code"])
                else:
                    ended: Future[int] = Future()
                    self._ends[told["pid"]] = ended
                    self._asked.pop(told["id"]).set_result((told["pid"], ended))

    async def fork(self, **wanted: object) -> tuple[int, "Future[int]"]:
        """Return the pid of a new child, and the future of its exit code."""
        number = next(self._ids)
        asked: Future[tuple[int, Future[int]]] = Future()
        with self._lock:
            self._asked[number] = asked
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **wanted}).encode() + b"\n")
        self._process.stdin.flush()
        return await asyncio.wrap_future(asked)

    def close(self) -> None:
        """End it, with every child that is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """One process of the service."""

    role: Role
    pid: int
    port: int
    log: Path
    ended: "Future[int]"
    worker: str | None = None
    checked: bool = True

    @property
    def url(self) -> str:
        """Return where its API is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def struck(self) -> bool:
        """Return whether it has come to its point."""
        return Path(f"{self.log}.struck").exists()

    @property
    def points(self) -> list[str]:
        """Return the points it has passed, if they were recorded."""
        return Path(f"{self.log}.points").read_text().split()

    @property
    def alive(self) -> bool:
        """Return whether it has not ended."""
        return not self.ended.done()

    @property
    def frozen(self) -> bool:
        """Return whether it is stopped by SIGSTOP now."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: int) -> None:
        """Send a signal, if it is still there."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to drain and end."""
        self.signal(signal.SIGTERM)

    async def wait(self, timeout_s: float = 30.0) -> int:
        """Return its exit code, once it has ended."""
        async with asyncio.timeout(timeout_s):
            # shielded: giving up the wait must not cancel the future, which others wait for too
            return await asyncio.shield(asyncio.wrap_future(self.ended))

    def text(self) -> str:
        """Return what it has logged so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
