"""The processes of a soak: two of each role, killed and stopped at random, and measured.

The first of each role is never killed, only stopped for a while: its memory and its sockets are
what the report tells of. The others die every few seconds, and others take their places.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.integration.process import Process, Role
from tests.integration.stack import Stack, bad_lines

EACH: Final = 2
SAMPLES_S: Final = 1.0
STOPS_S: Final = 4.5
"""For how long a worker stands still: longer than its lease."""


@dataclass(slots=True)
class Sample:
    """What a process held at a moment."""

    at_s: float
    rss_mb: float
    sockets: int


@dataclass(slots=True)
class Fleet:
    """The processes, and what was done to them."""

    stack: Stack
    chance: random.Random
    every_s: tuple[float, float]
    roles: dict[Role, list[Process]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """Start two of each role."""
        roles: tuple[Role, Role] = ("api", "worker")
        for role in roles:
            self.roles[role] = [await self.stack.start(role) for _ in range(EACH)]

    @property
    def urls(self) -> list[str]:
        """Return where the API is, in an order of its own each time, as a balancer would."""
        urls = [process.url for process in self.roles["api"]]
        self.chance.shuffle(urls)
        return urls

    @property
    def elders(self) -> dict[str, Process]:
        """Return the processes that live for the whole soak."""
        return {role: processes[0] for role, processes in self.roles.items()}

    async def harm(self) -> None:
        """Kill, terminate and stop for ever."""
        while True:
            await asyncio.sleep(self.chance.uniform(*self.every_s))
            role: Role = self.chance.choice(("api", "worker", "worker"))
            how = self.chance.choice(("kill", "kill", "term"))
            if role == "worker" and self.chance.random() < 0.2:
                await self._stop(self.roles["worker"][0])
            else:
                await self._replace(role, how)

    async def _stop(self, process: Process) -> None:
        self.done["a worker stopped past its lease"] += 1
        process.freeze()
        try:
            await asyncio.sleep(STOPS_S)
        finally:
            process.thaw()

    async def _replace(self, role: Role, how: str) -> None:
        name = {"kill": "kill -9", "term": "SIGTERM"}[how]
        self.done[f"{name} of {'an API' if role == 'api' else 'a worker'}"] += 1
        old = self.roles[role][1]
        if how == "kill":
            old.kill()
        else:
            old.terminate()
        code = await old.wait()
        if how == "term" and code != 0:
            self.faults.append(f"a {role} process ended with {code} after SIGTERM")
        self._look_into_log(old)
        self.roles[role][1] = await self.stack.start(role)

    async def measure(self) -> None:
        """Sample the elders for ever."""
        began = time.monotonic()
        while True:
            for role, process in self.elders.items():
                sample = Sample(time.monotonic() - began, rss_mb(process), sockets(process))
                self.samples.setdefault(role, []).append(sample)
            await asyncio.sleep(SAMPLES_S)

    def _look_into_log(self, process: Process) -> None:
        """Note what a process may not have logged; its log is not needed any more."""
        process.checked = False
        self.faults += [f"{process.log.name}: {line}" for line in bad_lines(process)]
        process.log.unlink(missing_ok=True)

    def end(self) -> None:
        """Look at those that still live."""
        for processes in self.roles.values():
            for process in processes:
                if not process.alive:
                    self.faults.append(f"{process.log.name} has ended by itself")
                self._look_into_log(process)


def rss_mb(process: Process) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def sockets(process: Process) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except FileNotFoundError:  # closed since it was listed
            continue
    return count


def slope(samples: list[Sample]) -> float:
    """Return the growth of the memory in MB a minute, by least squares over the samples."""
    if len(samples) < 2:
        return 0.0
    mean_x = sum(s.at_s for s in samples) / len(samples)
    mean_y = sum(s.rss_mb for s in samples) / len(samples)
    up = sum((s.at_s - mean_x) * (s.rss_mb - mean_y) for s in samples)
    down = sum((s.at_s - mean_x) ** 2 for s in samples)
    return 60 * up / down if down else 0.0
