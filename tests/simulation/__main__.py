"""`make simulate`: many seeds, one seed with its trace, or how soon each planted fault is found."""

import argparse
import hashlib
import os
import sys
import time

from tests.simulation.plants import PLANTS
from tests.simulation.pool import Sum, build_of, played_by_many, seeds_until_found
from tests.simulation.run import simulate

MANY = 100_000
SEARCHED = 5000


def main() -> int:
    """Do what the command line says; 1 when something does not hold."""
    args = _arguments()
    if args.seed is not None:
        outcome = simulate(args.seed, build_of(args.plant))
        print(outcome.told())
        return int(outcome.violation is not None)
    if args.hashes:
        print(_hashes(range(args.start, args.start + args.seeds)))
        return 0
    if args.plants:
        return _search()
    return _play(range(args.start, args.start + args.seeds), args.processes, args.plant)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one and print its trace")
    parser.add_argument("--seeds", type=int, default=MANY, help="how many to play")
    parser.add_argument("--from", dest="start", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a build with this fault")
    parser.add_argument("--plants", action="store_true", help="how soon each fault is found")
    parser.add_argument("--hashes", action="store_true", help="print a hash over the traces")
    return parser.parse_args()


def _hashes(seeds: range) -> str:
    whole = hashlib.sha256()
    for seed in seeds:
        whole.update(simulate(seed).trace_hash.encode())
    return whole.hexdigest()


def _search() -> int:
    missed = 0
    for name in PLANTS:
        found = seeds_until_found(name, SEARCHED)
        missed += found is None
        after = "not found" if found is None else f"{found.seed + 1:5} seeds  {found.violation}"
        print(f"{name:18} {after}", flush=True)
    return int(missed > 0)


def _play(seeds: range, processes: int, plant: str | None) -> int:
    began_s = time.monotonic()

    def progress(total: Sum) -> None:
        pace = total.runs / (time.monotonic() - began_s)
        line = f"{total.runs}/{len(seeds)} runs, {pace:.0f}/s, {len(total.failures)} failed"
        end = "\r" if sys.stderr.isatty() else "\n"
        if sys.stderr.isatty() or total.runs % 1000 == 0 or total.runs == len(seeds):
            print(line, end=end, file=sys.stderr, flush=True)

    total = played_by_many(seeds, processes, plant, progress)
    for outcome in total.failures:
        print(f"seed {outcome.seed}: {outcome.violation}")
    if total.failures:
        print(total.failures[0].told())
    hours = total.virtual_s / 3600
    events = total.events.total()
    took_s = time.monotonic() - began_s
    print(
        f"{total.runs} runs: {total.sessions} sessions, {events} events, {hours:.1f} h of virtual "
        f"time in {took_s:.0f} s; {len(total.failures)} failed"
    )
    return int(bool(total.failures))


if __name__ == "__main__":
    sys.exit(main())
