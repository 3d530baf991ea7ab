"""`make requirements`: which tests prove which requirement and case, and what is still open.

python -m tests.requirements                       the whole list
python -m tests.requirements --open                only what is not proved
python -m tests.requirements --ids API-1,LOOP-3    these only; exit code 1 when one is not proved
"""

import argparse
import shutil
import sys
from collections.abc import Iterable

from tests.scripts import trace

Tests = list[tuple[str, str]]


def main(argv: list[str] | None = None) -> int:
    """Print the list; the exit code says whether the ids asked for are proved."""
    options = _parser().parse_args(argv)
    lines = trace.requirements()
    cases = trace.cases()
    tests = _by_id(trace.load())
    asked = [i.strip() for i in options.ids.split(",") if i.strip()] if options.ids else None
    unknown = [i for i in asked or () if i not in lines and i not in cases]
    if unknown:
        print(f"unknown ids: {', '.join(unknown)}")
        return 2
    for name in asked or (*lines, *cases):
        if not (options.open and status(tests.get(name, [])) == "proved"):
            _show(name, lines.get(name) or cases[name], tests.get(name, []))
    print(_summary("requirements", lines, tests))
    print(_summary("cases", cases, tests))
    return int(any(status(tests.get(i, [])) != "proved" for i in asked or ()))


def status(tests: Tests) -> str:
    """Proved needs a test that passed, and none that did not; a skipped test proves nothing."""
    outcomes = {outcome for _, outcome in tests}
    if "failed" in outcomes:
        return "failing"
    if not outcomes:
        return "open"
    return "proved" if outcomes == {"passed"} else "skipped"


def _by_id(results: trace.Results) -> dict[str, Tests]:
    found: dict[str, Tests] = {}
    for nodeid, entry in sorted(results.items()):
        for name in entry["ids"]:
            found.setdefault(name, []).append((nodeid, entry["outcome"]))
    return found


def _show(name: str, text: str, tests: Tests) -> None:
    width = shutil.get_terminal_size((110, 24)).columns
    print(f"{name:<9} {status(tests):<8} {text}"[:width])
    for nodeid, outcome in tests:
        print(f"{'':<9} {outcome:<8} {nodeid}")


def _summary(what: str, ids: Iterable[str], tests: dict[str, Tests]) -> str:
    found = [status(tests.get(name, [])) for name in ids]
    counts = ", ".join(
        f"{found.count(kind)} {kind}" for kind in ("proved", "failing", "skipped", "open")
    )
    return f"{what}: {len(found)} in all, {counts}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.requirements", description="What the tests prove."
    )
    parser.add_argument("--ids", help="ids, separated by commas; exit 1 when one is not proved")
    parser.add_argument("--open", action="store_true", help="leave out what is proved")
    return parser


if __name__ == "__main__":
    sys.exit(main())
