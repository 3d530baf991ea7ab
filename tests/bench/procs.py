"""What processes used, from /proc: CPU time and memory of whole process trees."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc")
# Fields of /proc/<pid>/stat after the name in brackets, counted from the state.
_PARENT, _FIRST_TIME, _LAST_TIME, _RESIDENT = 1, 11, 15, 21


def _stats() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[int(entry.name)] = line[line.rindex(")") + 2 :].split()
    return found


def _tree(roots: Iterable[int], stats: dict[int, list[str]]) -> set[int]:
    """Return the roots and everything below them."""
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: set[int] = set()
    todo = [pid for pid in roots if pid in stats]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def cpu_ms(groups: dict[str, list[int]]) -> dict[str, float]:
    """Return the CPU time so far of each group of trees, children that have ended included."""
    stats = _stats()
    return {
        name: sum(
            int(ticks)
            for pid in _tree(roots, stats)
            for ticks in stats[pid][_FIRST_TIME:_LAST_TIME]
        )
        * 1000
        / _TICKS_PER_S
        for name, roots in groups.items()
    }


@contextlib.contextmanager
def only_on(cores: int | None, roots: Iterable[int]) -> Iterator[None]:
    """Keep these trees, this process, and what they start, on so many cores; None: on all."""
    whole = os.sched_getaffinity(0)
    if cores is None:
        yield
        return
    pids = [*roots, os.getpid()]
    _pin(pids, set(sorted(whole)[:cores]))
    try:
        yield
    finally:
        _pin(pids, whole)


def _pin(roots: Iterable[int], cores: set[int]) -> None:
    for pid in _tree(roots, _stats()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in (_PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)


def machine_cpu_ms() -> float:
    """Return the CPU time that all processes of the machine have used so far."""
    user, nice, system, _idle, _wait, irq, softirq = (_PROC / "stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) * 1000 / _TICKS_PER_S


def memory_mb(groups: dict[str, list[int]]) -> dict[str, float]:
    """Return the memory of each group; pages that several processes share are counted once.

    That is the proportional set size where the kernel lets us read it, else the resident size.
    """
    stats = _stats()
    return {
        name: sum(_memory(pid, stats[pid]) for pid in _tree(roots, stats)) / 2**20
        for name, roots in groups.items()
    }


def _memory(pid: int, fields: list[str]) -> int:
    try:
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(fields[_RESIDENT]) * _PAGE
