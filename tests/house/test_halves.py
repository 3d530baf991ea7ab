"""The two halves are the whole: each test is in one of them, and its outcome comes out of it."""

from typing import get_args

import pytest

from tests.halves import LONGEST, ROOT, Half
from tests.scripts import trace
from tests.suite import command, verdict

TESTS = """
import os
import pytest

{whole}
@pytest.mark.req("API-1")
def test_shared(): assert ("PYTEST_XDIST_WORKER" in os.environ) is {shared}

@pytest.mark.alone
@pytest.mark.req("API-2")
def test_alone(): assert "PYTEST_XDIST_WORKER" not in os.environ
"""


def test_the_longest_files_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0], 0), ([1, 0], 1), ([5, 0], 0), ([1, 5], 1), ([5, 5], 5)]
)
def test_an_empty_half_is_no_failure(codes: list[int], expected: int) -> None:
    assert verdict(codes) == expected


def test_each_test_is_run_in_its_half_and_recorded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS", "2")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # this test may run in a worker itself
    pytester.makeini("[pytest]\nmarkers =\n  alone\n  req(*ids)\n")
    pytester.makepyfile(
        test_some=TESTS.format(whole="", shared=True),
        test_none=TESTS.format(whole="pytestmark = pytest.mark.alone", shared=False),
    )
    plugins = ["-p", "tests.halves", "-p", "tests.requirements_plugin"]
    for half in get_args(Half):
        ran = pytester.run(*command(half, plugins), timeout=200)
        assert ran.ret == 0, ran.outlines
    outcomes = {name: entry["outcome"] for name, entry in trace.load(pytester.path).items()}
    files, tests = ("some", "none"), ("shared", "alone")
    every = [f"test_{file}.py::test_{test}" for file in files for test in tests]
    assert outcomes == dict.fromkeys(every, "passed")
