"""The figures as tables, and the aims with their verdicts."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.measuring import Figures, median
from tests.bench.systems import Cell
from tests.bench.work import MODEL_CALLS, SLOW_S

AIM_RATE: Final = 100.0
AIM_LATENCY: Final = 2.0
MOST_OTHERS: Final = 0.1
"""Cores that other programs may take before the report says so."""

AIM_SCALING: Final = 1.6
"""What a second core with a second worker is to bring."""

SCALING_CELL: Final = Cell(64)
AIM_CELLS: Final = (Cell(1), Cell(64), Cell(1, stream=True), Cell(64, stream=True))
_HEAD: Final = (
    "system",
    "in flight",
    "sessions/s (min-max)",
    "p50 ms",
    "p95",
    "p99",
    "first event ms",
    "CPU ms/call service",
    "Postgres",
    "Valkey",
    "MB service",
    "Postgres",
    "Valkey",
    "rate : floor",
    "p50 : floor",
)
Key = tuple[str, Cell]


@dataclass
class Results:
    """Every run of every cell."""

    runs: dict[Key, list[Figures]] = field(default_factory=dict)
    commit_ms: float = 0.0

    def add(self, system: str, cell: Cell, figures: Figures) -> None:
        """Add one repetition."""
        self.runs.setdefault((system, cell), []).append(figures)

    def median(self, system: str, cell: Cell) -> Figures | None:
        """Return the median over the repetitions, where there is one."""
        runs = self.runs.get((system, cell))
        return median(runs) if runs else None


def machine(results: Results, options: Mapping[str, object]) -> list[str]:
    """Return where and how it was measured."""
    cpu = "unknown CPU"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    how = ", ".join(f"{name} {value}" for name, value in options.items())
    return [
        f"{cores} cores ({cpu}), {platform.system()}, Python {platform.python_version()}.",
        "Everything on this machine: load, model, service, Postgres (fsync on), Valkey.",
        f"{how}.".capitalize(),
        f"A commit of one row takes {results.commit_ms:.1f} ms (median, one connection).",
        f"A session: {MODEL_CALLS} model calls and {MODEL_CALLS - 1} tool calls.",
        "Figures are medians over the repetitions; memory counts shared pages once.",
    ]


def tables(results: Results, floor: str) -> list[tuple[str, list[list[str]]]]:
    """Return a table for each combination of model delay, tools and streaming."""
    kinds: dict[tuple[bool, bool, bool], list[Key]] = {}
    for system, cell in results.runs:
        kinds.setdefault((cell.over_http, cell.slow, cell.stream), []).append((system, cell))
    made = []
    for (over_http, slow, stream), keys in sorted(kinds.items()):
        delay = f"{SLOW_S * 1000:.0f} ms" if slow else "0 ms"
        how = "streamed to the client" if stream else "client waits (`Prefer: wait`)"
        tools = ", tools over HTTP" if over_http else ""
        keys.sort(key=lambda key: key[1].inflight)
        rows = [_row(results, floor, *key) for key in keys]
        made.append((f"Model delay {delay}, {how}{tools}", [list(_HEAD), *rows]))
    return made


def _row(results: Results, floor: str, system: str, cell: Cell) -> list[str]:
    runs = results.runs[system, cell]
    got, least = median(runs), results.median(floor, cell)
    rates = sorted(run.rate for run in runs)
    spread = f" ({rates[0]:.0f}-{rates[-1]:.0f})" if len(rates) > 1 else ""
    return [
        system,
        str(cell.inflight),
        f"{got.rate:.1f}{spread}",
        *(f"{value:.1f}" for value in (got.p50, got.p95, got.p99, got.first_event)),
        *(f"{value:.2f}" for value in (got.cpu_service, got.cpu_postgres, got.cpu_valkey)),
        *(
            f"{value:.0f}" if value else "-"
            for value in (got.memory_service, got.memory_postgres, got.memory_valkey)
        ),
        f"{got.rate / least.rate:.2f}" if least else "-",
        f"{got.p50 / least.p50:.2f}" if least else "-",
    ]


def ceilings(results: Results) -> list[str]:
    """Return what the scripted model and the load itself cost, so that neither is the limit."""
    runs = [run for all_runs in results.runs.values() for run in all_runs]
    if not runs:
        return []
    # The busiest runs: the kernel counts CPU in ticks of 10 ms.
    model = max(runs, key=lambda run: run.sessions).cpu_model
    driven = max(runs, key=lambda run: run.sessions if run.cpu_driver else 0.0).cpu_driver
    lines = [f"The scripted model takes {model:.3f} ms of CPU a call."]
    if model:
        calls = 1000 / model
        ceiling = f"{calls:,.0f} calls/s, {calls / MODEL_CALLS:,.0f} sessions/s"
        lines.append(f"Its ceiling on one core: {ceiling}.")
    if driven:
        lines.append(f"The load takes {driven * MODEL_CALLS:.2f} ms of CPU a session.")
    others = statistics.median(run.others for run in runs)
    if others > MOST_OTHERS:
        lines.append(f"WARNING: other programs took {others:.1f} cores meanwhile: not a quiet run.")
    return lines


def aims(results: Results, *, floor: str, bare: str, ours: Iterable[str]) -> list[str]:
    """Return each aim with the figure and the verdict."""
    lines: list[str] = []
    for system in ours:
        for stream in (False, True):
            how = "streamed" if stream else "waited"
            got = results.median(system, Cell(64, stream=stream))
            if got is not None:
                lines.append(
                    f"{system}, {how}: {got.rate:.1f} sessions/s at 64 in flight, "
                    f"aim {AIM_RATE:.0f}: {_verdict(got.rate >= AIM_RATE)}"
                )
            ratio = _added(results, system, floor, bare, stream=stream)
            if ratio is not None:
                lines.append(
                    f"{system}, {how}: added latency at 1 in flight {ratio:.2f} x the floor "
                    f"service's, aim {AIM_LATENCY:.0f}: {_verdict(ratio <= AIM_LATENCY)}"
                )
    return lines


def scaling(results: Results, *, one: str, two: str) -> list[str]:
    """Return what two workers on two cores give, beside one worker with everything on one core."""
    alone, both = results.median(one, SCALING_CELL), results.median(two, SCALING_CELL)
    if alone is None or both is None:
        return []
    ratio = both.rate / alone.rate
    verdict = _verdict(ratio >= AIM_SCALING)
    rates = f"{both.rate:.1f} against {alone.rate:.1f} sessions/s"
    return [f"{two} : {one}: {ratio:.2f} ({rates}), aim {AIM_SCALING}: {verdict}"]


def _added(results: Results, system: str, floor: str, bare: str, *, stream: bool) -> float | None:
    """Return our latency over the bare loop's, as a multiple of the floor service's."""
    cell = Cell(1, stream=stream)
    got, least = results.median(system, cell), results.median(floor, cell)
    nothing = results.median(bare, Cell(1))
    if got is None or least is None or nothing is None or least.p50 <= nothing.p50:
        return None
    return (got.p50 - nothing.p50) / (least.p50 - nothing.p50)


def _verdict(met: bool) -> str:  # noqa: FBT001 - it is the question itself
    return "met" if met else "NOT met"


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table for docs/performance.md."""
    head, *rest = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rest))
