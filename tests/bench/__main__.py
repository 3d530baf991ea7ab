"""`make bench`: start everything, measure ours beside the floors, print tables and verdicts.

Each repetition goes through all systems, so that a machine that changes its mind changes it for
all of them; each system is started fresh on an empty database. A session that fails, or does not
do the work, fails the bench.
"""

import argparse
import asyncio
import os
import pstats
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import procs, report
from tests.bench.ground import Ground, standing
from tests.bench.handover import Handover, handovers, told
from tests.bench.measuring import BenchError, measure
from tests.bench.report import Results
from tests.bench.systems import FLOOR, Cell, System, bare_loop, surefoot

_BARE = bare_loop("aiohttp")
_OURS = "surefoot, api + worker"
_ONE_CORE = "surefoot, everything on one core"
_TWO_WORKERS = "surefoot, api + two workers"
_PROFILED_LINES = 40


def _systems() -> list[System]:
    return [
        bare_loop("httpx2"),
        _BARE,
        FLOOR,
        surefoot(_OURS),
        surefoot("surefoot, one process", roles=("all",)),
        surefoot(
            "surefoot, collector",
            env=lambda ground: {"OTEL_EXPORTER_OTLP_ENDPOINT": ground.sink},
            cells=report.AIM_CELLS,
        ),
        surefoot(
            "surefoot, spans made, no collector",
            env=lambda _ground: {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
            cells=report.AIM_CELLS,
        ),
        surefoot(
            "surefoot, tracing off",
            env=lambda _ground: {"OTEL_SDK_DISABLED": "true"},
            cells=report.AIM_CELLS,
        ),
        surefoot(_ONE_CORE, cells=(report.SCALING_CELL,), cores=1),
        surefoot(_TWO_WORKERS, roles=("api", "worker", "worker"), cells=(report.SCALING_CELL,)),
    ]


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    seconds: float
    warmup_s: float
    repeat: int
    inflight: tuple[int, ...]
    delays: tuple[bool, ...]
    handovers: bool = False

    def cells(self, system: System) -> list[Cell]:
        """Return the cells of a system."""
        streams = (False, True) if system.streams else (False,)
        cells = [
            Cell(inflight, slow=slow, stream=stream)
            for slow in self.delays
            for stream in streams
            for inflight in self.inflight
        ]
        if system.cells is not None:
            return [cell for cell in cells if cell in system.cells]
        return [*cells, Cell(self.inflight[-1], over_http=True)] if system.http_tool else cells


async def _bench(
    plan: Plan, systems: Sequence[System], folder: Path
) -> tuple[Results, list[Handover], list[str]]:
    results, handed, failures = Results(), list[Handover](), list[str]()
    async with standing(folder) as ground:
        results.commit_ms = ground.commit_ms
        for repetition in range(1, plan.repeat + 1):
            for system in systems:
                print(f"# {repetition}/{plan.repeat} {system.name}", file=sys.stderr, flush=True)
                try:
                    await _measure_all(ground, plan, system, results)
                except (BenchError, RuntimeError) as error:
                    failures.append(f"{system.name}: {error}")
                    print(f"  FAILED {error}", file=sys.stderr, flush=True)
            if plan.handovers:
                try:
                    handed += await handovers(ground)
                except RuntimeError as error:
                    failures.append(str(error))
    return results, handed, failures


async def _measure_all(ground: Ground, plan: Plan, system: System, results: Results) -> None:
    with procs.only_on(system.cores, ground.pids):
        async with system.start(ground) as running:
            for cell in plan.cells(system):
                got = await measure(
                    ground, running, cell, warmup_s=plan.warmup_s, seconds=plan.seconds
                )
                results.add(system.name, cell, got)
                figures = f"{got.rate:.1f}/s, p50 {got.p50:.1f} ms, {got.cpu_service:.2f} ms/call"
                print(f"  {cell}: {figures}", file=sys.stderr, flush=True)


async def _profile(seconds: float, folder: Path, cell: Cell) -> None:
    """Run ours under cProfile, and list where each process spent its time."""
    system = surefoot(_OURS, profile=True)
    async with standing(folder) as ground, system.start(ground) as running:
        await measure(ground, running, cell, warmup_s=1.0, seconds=1.0)
        for pid in running.groups["service"]:
            os.kill(pid, signal.SIGUSR1)
        got = await measure(ground, running, cell, warmup_s=0.0, seconds=seconds)
    print(f"{got.sessions:.0f} sessions in the window, {got.rate:.1f}/s under the profiler")
    for file in sorted(folder.glob("*.prof")):
        for order in ("tottime", "cumulative"):
            print(f"\n== {file.stem}, by {order}")
            pstats.Stats(str(file)).strip_dirs().sort_stats(order).print_stats(_PROFILED_LINES)


def _told(
    results: Results,
    handed: list[Handover],
    failures: list[str],
    options: dict[str, object],
) -> tuple[str, str]:
    """Return the report for a terminal and for a page."""
    made = report.tables(results, FLOOR.name)
    ours = [name for name in dict.fromkeys(key[0] for key in results.runs) if "surefoot" in name]
    verdicts = report.aims(results, floor=FLOOR.name, bare=_BARE.name, ours=ours)
    verdicts += report.scaling(results, one=_ONE_CORE, two=_TWO_WORKERS)
    head = [*report.machine(results, options), *report.ceilings(results)]
    text = [*head, *(f"\n{title}\n{report.as_text(rows)}" for title, rows in made), "", *verdicts]
    page = [
        "\n".join(head),
        *(f"### {title}\n\n{report.as_markdown(rows)}" for title, rows in made),
    ]
    page.append("\n".join(f"- {verdict}" for verdict in verdicts))
    if handed:
        text += ["", *told(handed)]
        page.append("\n".join(told(handed)))
    failed = [f"FAILED {failure}" for failure in failures]
    return "\n".join([*text, *failed]), "\n\n".join([*page, *failed]) + "\n"


def _plan(given: argparse.Namespace) -> Plan:
    if given.quick:
        plan = Plan(given.seconds or 1.5, 0.7, given.repeat or 1, (1, 16), (False,))
    else:
        plan = Plan(given.seconds or 5.0, 1.0, given.repeat or 3, (1, 16, 64), (False, True))
    return replace(plan, handovers=not (given.quick or given.only))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test of a minute")
    parser.add_argument("--only", action="append", metavar="WORDS", help="systems with these words")
    parser.add_argument("--seconds", type=float, help="the length of a cell's window")
    parser.add_argument("--repeat", type=int, help="repetitions, of which medians are taken")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--profile", action="store_true", help="profile ours instead")
    parser.add_argument("--inflight", type=int, default=16, help="sessions at once, when profiled")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="logs and profiles")
    return parser.parse_args()


def main() -> int:
    """Run what the options say."""
    given = _arguments()
    folder: Path = given.folder
    folder.mkdir(exist_ok=True)
    for old in (*folder.glob("*.log"), *folder.glob("*.prof")):
        old.unlink()
    if given.profile:
        asyncio.run(_profile(given.seconds or 10.0, folder, Cell(given.inflight)))
        return 0
    plan = _plan(given)
    systems = [s for s in _systems() if not given.only or any(w in s.name for w in given.only)]
    if not systems:
        print("no system has these words in its name", file=sys.stderr)
        return 2
    results, handed, failures = asyncio.run(_bench(plan, systems, folder))
    options = {"windows of": f"{plan.seconds:g} s", "repetitions": plan.repeat}
    text, page = _told(results, handed, failures, options)
    print(text)
    if given.markdown:
        given.markdown.write_text(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
