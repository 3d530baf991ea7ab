"""The record of which test proves which requirement is right, and survives partial runs."""

import pytest

from tests import requirements
from tests.scripts import trace

PASSES = """
import pytest

@pytest.mark.req("API-1", "API-2")
@pytest.mark.case("C001")
def test_one(): pass

@pytest.mark.req("API-1")
@pytest.mark.parametrize("n", [1, 2])
def test_two(n): assert n < {limit}

@pytest.mark.req("API-3")
@pytest.mark.skip(reason="later")
def test_three(): pass

@pytest.fixture
def broken():
    yield
    raise RuntimeError

@pytest.mark.req("API-5")
def test_four(broken): pass

def test_without_ids(): pass
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(
        "-p", "no:asyncio", "-p", "tests.requirements_plugin", *args
    )


def outcomes(pytester: pytest.Pytester) -> dict[str, str]:
    results = trace.load(pytester.path)
    return {nodeid.partition("::")[2]: entry["outcome"] for nodeid, entry in results.items()}


def test_outcomes_are_recorded_with_their_ids(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=PASSES.format(limit=2))
    run(pytester)
    assert outcomes(pytester) == {
        "test_one": "passed",
        "test_two[1]": "passed",
        "test_two[2]": "failed",
        "test_three": "skipped",
        "test_four": "failed",
    }
    assert sorted(trace.load(pytester.path)["test_a.py::test_one"]["ids"]) == [
        "API-1",
        "API-2",
        "C001",
    ]


def test_a_partial_run_replaces_only_what_it_ran(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=PASSES.format(limit=2), test_b=PASSES.format(limit=3))
    run(pytester)
    before = trace.load(pytester.path)
    pytester.makepyfile(test_a=PASSES.format(limit=3))
    run(pytester, "-k", "test_two", "test_a.py")
    changed = {k for k, v in trace.load(pytester.path).items() if before[k] != v}
    assert changed == {"test_a.py::test_two[2]"}
    assert trace.load(pytester.path).keys() == before.keys()


def test_tests_that_are_gone_are_forgotten(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=PASSES.format(limit=3), test_b=PASSES.format(limit=3))
    run(pytester)
    pytester.makepyfile(test_a=PASSES.replace("test_one", "test_new").format(limit=3))
    (pytester.path / "test_b.py").unlink()
    run(pytester, "test_a.py")
    found = trace.load(pytester.path)
    assert "test_a.py::test_new" in found
    assert "test_a.py::test_one" not in found
    assert not [nodeid for nodeid in found if nodeid.startswith("test_b.py")]


def test_collecting_alone_records_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=PASSES.format(limit=3))
    run(pytester, "--collect-only")
    assert trace.load(pytester.path) == {}


def test_an_unknown_id_stops_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('import pytest\n@pytest.mark.req("API-99")\ndef test_one(): pass\n')
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unknown requirement or case ids*", "*test_one: API-99*"])


def test_every_line_of_the_page_is_read() -> None:
    """A table row that the pattern does not take would silently be no requirement."""
    rows = [r for r in trace.REQUIREMENTS.read_text().splitlines() if r.startswith("| ")]
    headers = [r for r in rows if r.startswith("| id |")]
    assert len(trace.requirements()) == len(rows) - len(headers) > 100
    assert len(trace.cases()) >= 123


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], "open"),
        (["passed", "passed"], "proved"),
        (["passed", "failed", "skipped"], "failing"),
        (["passed", "skipped"], "skipped"),
    ],
    ids=["none", "passed", "failed", "skipped"],
)
def test_proved_needs_every_test_to_have_passed(outcomes: list[str], expected: str) -> None:
    assert requirements.status([("test", outcome) for outcome in outcomes]) == expected


def test_the_report_gates_on_the_ids_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proof: trace.Results = {"test_a.py::test_one": {"ids": ["API-1"], "outcome": "passed"}}
    monkeypatch.setattr(trace, "load", lambda: proof)
    assert requirements.main(["--ids", "API-1"]) == 0
    assert "test_a.py::test_one" in capsys.readouterr().out
    assert requirements.main(["--ids", "API-1,API-2"]) == 1
    assert requirements.main(["--ids", "NO-1"]) == 2
    assert requirements.main(["--open"]) == 0
    assert " in all, 1 proved" in capsys.readouterr().out
