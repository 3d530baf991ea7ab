"""The two halves of the suite: what shares the machine with other tests, and what is alone on it.

Most of the long tests wait for a lease or a timeout and use no CPU, so several of them run at once.
What measures time, or counts everything that happens, is marked `alone`. `python -m tests.suite`
runs `--half=together` in several processes, then `--half=alone` in one. Without the option a run
knows no halves, and one process runs everything it was asked for.
"""

import re
from pathlib import Path
from typing import Literal, get_args

import pytest

Half = Literal["together", "alone"]
ROOT = Path(__file__).parents[1]
LONGEST = (
    "tests/simulation/test_many_runs.py",
    "tests/integration/test_crash_matrix.py",
    "tests/core/test_replay.py",
    "tests/integration/test_upgrade.py",
    "tests/integration/test_disconnect.py",
    "tests/histories/test_histories.py",
    "tests/integration/test_frozen.py",
    "tests/integration/test_status_check.py",
    "tests/integration/test_resume.py",
    "tests/core/test_properties.py",
    "tests/integration/test_bad_start.py",
    "tests/integration/test_many_waiting.py",
    "tests/integration/test_cancel.py",
    "tests/chaos/test_chaos.py",
    "tests/soak/test_soak.py",
    "tests/integration/test_fsck.py",
    "tests/integration/test_last_moment.py",
    "tests/bench/test_bench.py",
    "tests/integration/test_retention.py",
    "tests/integration/test_dev.py",
)
"""Files that take longest, from the longest on. They begin first, or all would wait for them."""
_MARKED = re.compile(r"\bmark\.alone\b")
_WHOLE = re.compile(r"^pytestmark = .*\bmark\.alone\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--half", choices=get_args(Half), help="one half of the suite only")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that have nothing of this half before they cost their import."""
    half: Half | None = config.getoption("half")
    if half is None or collection_path.suffix != ".py":
        return None
    marked = _WHOLE if half == "together" else _MARKED
    found = marked.search(collection_path.read_text()) is not None
    return True if found is (half == "together") else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep this half. To the record of what was collected the other is there, not renamed."""
    half: Half | None = config.getoption("half")
    if half is not None:
        items[:] = [
            i for i in items if (i.get_closest_marker("alone") is None) is (half != "alone")
        ]
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    file = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)
