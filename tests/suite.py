"""The suite in its two halves (see `tests.halves`): python -m tests.suite [arguments of pytest].

`WORKERS` says in how many processes the tests run that share the machine. There are more than
cores, since most of what takes long is waiting; each has a Postgres and a Valkey of its own, if one
of its tests asks for them.
"""

import os
import subprocess
import sys
from typing import get_args

import pytest

from tests.halves import Half

_SPLIT = ("--dist=loadfile", "--no-loadscope-reorder")
"""A file stays in one process, so what a module sets up is set up once."""
_WHOLE = {
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
}
"""How a run ends that was not broken off."""


def workers() -> int:
    """Twice the cores, but no fewer than four and no more than eight."""
    return int(os.environ.get("WORKERS") or min(8, max(4, 2 * (os.cpu_count() or 1))))


def command(half: Half, args: list[str]) -> list[str]:
    """How one half is run."""
    how = ("-n", str(workers()), *_SPLIT) if half == "together" else ()
    more = ("--cov-append",) if half == "alone" and "--cov" in args else ()
    return [sys.executable, "-m", "pytest", f"--half={half}", *how, *more, *args]


def verdict(codes: list[int]) -> int:
    """A half without a test has not failed, unless there was none in the other either."""
    empty = pytest.ExitCode.NO_TESTS_COLLECTED
    return max((code for code in codes if code != empty), default=int(empty))


def main(args: list[str]) -> int:
    """Run both; only a run that was broken off does not come to the second."""
    codes: list[int] = []
    for half in get_args(Half):
        code = subprocess.run(command(half, args), check=False).returncode
        codes.append(abs(code))  # below zero is a signal
        if code not in _WHOLE:
            break
    return verdict(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
