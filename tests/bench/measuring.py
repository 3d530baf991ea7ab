"""One cell measured: the load runs aside, CPU and memory are read around its window."""

import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tests.bench.ground import Ground, Process, stop
from tests.bench.procs import cpu_ms, machine_cpu_ms, memory_mb
from tests.bench.systems import Cell, Running
from tests.bench.work import MODEL_CALLS

_SLACK_S = 120.0
_TOLD = 600
_MACHINE = "machine"
_LONGEST_LINE = 64 * 2**20


@dataclass(frozen=True)
class Figures:
    """What one cell gave. Times in ms; CPU in ms per model call; memory in MB."""

    rate: float
    p50: float
    p95: float
    p99: float
    first_event: float
    cpu_service: float
    cpu_postgres: float
    cpu_valkey: float
    cpu_model: float
    cpu_driver: float
    memory_service: float
    memory_postgres: float
    memory_valkey: float
    sessions: float
    others: float
    """How many cores other programs of the machine took meanwhile."""


class BenchError(Exception):
    """A cell with an error in it is no measurement."""


@dataclass
class _Heard:
    cpu_begin: dict[str, float]
    cpu_end: dict[str, float]
    memory: dict[str, float]
    result: dict[str, object]


async def measure(
    ground: Ground, running: Running, cell: Cell, *, warmup_s: float, seconds: float
) -> Figures:
    """Run the load for one cell and return its figures.

    Raises:
        BenchError: when any session failed or did not do the work.

    """
    timing = ["--warmup", str(warmup_s), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(
        *running.command(cell),
        *timing,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
    )
    itself = {"service" if running.bare else "driver": [process.pid]}
    groups = {**running.groups, **itself, "model": [ground.model.pid]}
    try:
        async with asyncio.timeout(warmup_s + seconds + _SLACK_S):
            heard = await _listen(process, groups)
            await process.wait()
    finally:
        if process.returncode is None:
            await stop(process)
    return _figures(cell, heard)


async def _listen(process: Process, groups: dict[str, list[int]]) -> _Heard:
    heard = _Heard({}, {}, {}, {})
    assert process.stdout is not None
    async for line in process.stdout:
        message = json.loads(line)
        match message.pop("event"):
            case "begin":
                heard.cpu_begin = _cpu(groups)
            case "end":
                heard.cpu_end = _cpu(groups)
                heard.memory = memory_mb(groups)
            case _:
                heard.result = message
    return heard


def _cpu(groups: dict[str, list[int]]) -> dict[str, float]:
    return {**cpu_ms(groups), _MACHINE: machine_cpu_ms()}


def _figures(cell: Cell, heard: _Heard) -> Figures:
    result = heard.result
    errors, latencies = result.get("errors"), _numbers(result.get("latencies_ms"))
    seconds = result.get("seconds")
    if errors or len(latencies) < 1 or not isinstance(seconds, float) or not heard.cpu_begin:
        first = str(errors[0])[:_TOLD] if isinstance(errors, list) and errors else "none"
        raise BenchError(f"{cell}: {len(latencies)} sessions, first error: {first}")
    calls = len(latencies) * MODEL_CALLS
    used = {name: end - heard.cpu_begin[name] for name, end in heard.cpu_end.items()}
    others = used.pop(_MACHINE) - sum(used.values())
    cpu = {name: ms / calls for name, ms in used.items()}
    return Figures(
        rate=len(latencies) / seconds,
        p50=percentile(latencies, 0.50),
        p95=percentile(latencies, 0.95),
        p99=percentile(latencies, 0.99),
        first_event=percentile(_numbers(result.get("first_events_ms")), 0.50),
        cpu_service=cpu.get("service", 0.0),
        cpu_postgres=cpu.get("postgres", 0.0),
        cpu_valkey=cpu.get("valkey", 0.0),
        cpu_model=cpu["model"],
        cpu_driver=cpu.get("driver", 0.0),
        memory_service=heard.memory.get("service", 0.0),
        memory_postgres=heard.memory.get("postgres", 0.0),
        memory_valkey=heard.memory.get("valkey", 0.0),
        sessions=float(len(latencies)),
        others=max(0.0, others) / (seconds * 1000),
    )


def _numbers(value: object) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list) else []


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at a share of the sorted values (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the repetitions."""
    return Figures(
        **{f.name: statistics.median(getattr(run, f.name) for run in runs) for f in fields(Figures)}
    )
