"""`make chaos`: the whole crash matrix, as a table; exits with 1 when anything is violated.

python -m tests.chaos [--lanes 4] [--only append,claim] [--actions kill,stop] [--report FILE]
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.cases import ACTIONS, Case, Found
from tests.chaos.matrix import every_case, run
from tests.chaos.servers import servers
from tests.chaos.table import failed, rows, too_many_missed
from tests.integration.without import MECHANISMS

LANES: Final = 4


def main() -> int:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--only", default="", help="ports or points, with commas between")
    parser.add_argument("--actions", default=",".join(ACTIONS))
    parser.add_argument("--every", type=int, default=1, help="only each n-th case")
    parser.add_argument("--without", action="append", default=[], choices=sorted(MECHANISMS))
    parser.add_argument("--report", type=Path)
    return asyncio.run(_main(parser.parse_args()))


async def _main(given: argparse.Namespace) -> int:
    began = time.monotonic()
    async with servers() as ground:
        every = await every_case(ground.stacks)
        wanted = [case for case in every if _is_wanted(case, given)][:: given.every]
        print(f"{len(wanted)} cases of {len(every)}", flush=True)
        outcome = await run(
            ground.stacks, wanted, lanes=given.lanes, told=_tell, without=given.without
        )
    found = outcome.found
    seconds = time.monotonic() - began
    text = "\n".join([*rows(found), "", f"{len(found)} cases in {seconds:.0f} s"])
    print(f"\n{text}")
    for fault in outcome.faults:
        print(f"VIOLATED beside the cases: {fault}")
    if given.report is not None:
        given.report.write_text(text + "\n")
    if too_many_missed(found):
        print("VIOLATED: too many cases never came to their point")
    bad = bool(outcome.faults) or too_many_missed(found)
    return int(bad or any(failed(one) for one in found))


def _is_wanted(case: Case, given: argparse.Namespace) -> bool:
    only = [word for word in given.only.split(",") if word]
    there = not only or case.row in only or case.point in only
    return there and case.action in given.actions.split(",")


def _tell(found: Found) -> None:
    if failed(found):
        print(f"VIOLATED {found.case}: {'; '.join(found.faults)}", flush=True)
    elif not found.struck:
        print(f"missed {found.case}: the run never came there", flush=True)
    elif sys.stdout.isatty():
        print(".", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
