"""`make soak MINUTES=20`: run the soak and print its report; exits with 1 on a violation.

python -m tests.soak --minutes 20 [--users 12] [--seed 1] [--report FILE]
"""

import argparse
import asyncio
import sys
from pathlib import Path

from tests.chaos.servers import servers
from tests.soak.report import report, violations
from tests.soak.run import soak


def main() -> int:
    """Run the soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    return asyncio.run(_main(parser.parse_args()))


async def _main(given: argparse.Namespace) -> int:
    async with servers() as ground:
        made = await soak(ground.stacks, minutes=given.minutes, users=given.users, seed=given.seed)
    text = "\n".join(report(made))
    print(text)
    if given.report is not None:
        given.report.write_text(text + "\n")
    return int(bool(violations(made)))


if __name__ == "__main__":
    sys.exit(main())
