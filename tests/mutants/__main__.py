"""`make mutants`: which changes of the code does no test notice?"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from typing import Final

from tests.mutants import sql_playing
from tests.mutants.making import Mutant, listed, prepare
from tests.mutants.playing import SURVIVED, TYPES, UNTESTED, load, save
from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.typed import refused

SQL: Final = "sql"


def main() -> int:
    """Mutate the chosen files, try what is not yet known to be killed, and tell who survived."""
    options = _options()
    os.nice(19 - os.nice(0))
    lived = 0
    for room in ROOMS:
        files = tuple(f for f in room.files if not options.files or f in options.files)
        if files:
            lived += _room(room, files, options.share)
    if not options.files or SQL in options.files:
        lived += sql_playing.main()
    return 1 if lived else 0


def _room(room: Room, files: tuple[str, ...], share: str) -> int:
    mutants = prepare(room, files)
    _ask_mypy(room, mutants)
    env = {**os.environ, "PYTHONPATH": str(room.place), "LIVES_SHARE": share}
    command = [sys.executable, "-m", "tests.mutants.playing", *room.tests]
    done = subprocess.run(command, cwd=room.place, env=env, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return _report(room, listed(room.place))


def _ask_mypy(room: Room, mutants: list[Mutant]) -> None:
    """Most mutants are refused in one go; those need no tests."""
    results = load(room.place)
    names = refused(room, mutants)
    for mutant in mutants:
        if mutant.name in names:
            results[mutant.digest] = TYPES
    save(room.place, results)


def _report(room: Room, mutants: list[Mutant]) -> int:
    results = load(room.place)
    lived = [m for m in mutants if results[m.digest] in {SURVIVED, UNTESTED}]
    for mutant in sorted(lived, key=lambda m: (m.path, m.line)):
        print(f"\n{mutant.path}:{mutant.line} {results[mutant.digest]}\n{mutant.diff}")
    print()
    for path in sorted({m.path for m in mutants}):
        verdicts = Counter(results[m.digest] for m in mutants if m.path == path)
        told = ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
        print(f"{room.name}: {path.removeprefix(f'{ROOT}/')}: {verdicts.total()} mutants, {told}")
    return len(lived)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help=f"files of app/, or {SQL}; without, everything")
    parser.add_argument("--share", default="0.02", help="how much of the random lives is lived")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
