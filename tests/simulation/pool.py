"""Many runs on several processors."""

import gc
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests.simulation.build import SOUND, Build
from tests.simulation.plants import PLANTS
from tests.simulation.run import Outcome, simulate

PROCESSES = min(2, os.cpu_count() or 1)
CHUNK = 20
MOST_FAILURES = 10


@dataclass
class Sum:
    """What came of many runs."""

    runs: int = 0
    sessions: int = 0
    virtual_s: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, other: "Sum") -> None:
        """Add up."""
        self.runs += other.runs
        self.sessions += other.sessions
        self.virtual_s += other.virtual_s
        self.events.update(other.events)
        self.failures.extend(other.failures)


def build_of(name: str | None) -> Build:
    """Return the build with a planted fault, or the sound one."""
    return SOUND if name is None else PLANTS[name]


def played(seeds: range, plant: str | None = None) -> Sum:
    """Play some runs in this process."""
    total = Sum()
    for seed in seeds:
        outcome = simulate(seed, build_of(plant))
        total.runs += 1
        total.sessions += outcome.sessions
        total.virtual_s += outcome.virtual_s
        total.events.update(outcome.events)
        if outcome.violation is not None:
            total.failures.append(outcome)
    gc.collect()
    return total


def played_by_many(
    seeds: range, processes: int, plant: str | None, progress: Callable[[Sum], None]
) -> Sum:
    """Play runs in several processes; `progress` is told of the sum so far."""
    total = Sum()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {pool.submit(played, chunk, plant) for chunk in _chunks(seeds)}
        for done in as_completed(waiting):
            total.add(_taken(done))
            progress(total)
            if len(total.failures) >= MOST_FAILURES:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    total.failures.sort(key=lambda outcome: outcome.seed)
    return total


def _taken(done: "Future[Sum]") -> Sum:
    return done.result()


def _chunks(seeds: range) -> Iterator[range]:
    for start in range(seeds.start, seeds.stop, CHUNK):
        yield range(start, min(start + CHUNK, seeds.stop))


def seeds_until_found(plant: str, most: int, first: int = 0) -> Outcome | None:
    """Return a run that a planted fault fails, or None within so many seeds; `first` begins."""
    for seed in (*range(first, most), *range(first)):
        outcome = simulate(seed, PLANTS[plant])
        if outcome.violation is not None:
            return outcome
    return None
