"""Several calls in one answer: together, in order where they say so, each with its result."""

from itertools import permutations

import pytest

from app.core.events import Outcome
from app.core.faults import FaultKind
from app.core.messages import ToolMessage
from app.core.plan import owed
from tests.core.machine_kit import ONCE, Machine, call


def told(session: Machine) -> list[tuple[str, str]]:
    """Return what the model reads, by call."""
    return [(m.call_id, m.content) for m in session.state.history if isinstance(m, ToolMessage)]


@pytest.mark.req("LOOP-12")
@pytest.mark.case("C090", "C054")
@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_results_return_in_the_order_asked(order: tuple[int, ...]) -> None:
    session = Machine()
    session.answer(*(call("echo", {"text": n}) for n in (1, 2, 3)))
    assert session.running() == ["t1_c1_1", "t1_c1_2", "t1_c1_3"]
    session.tell("meanwhile")
    for n in order:
        session.ok(f"t1_c1_{n}", f"r{n}")
    assert told(session) == [("t1_c1_1", "r1"), ("t1_c1_2", "r2"), ("t1_c1_3", "r3")]


@pytest.mark.req("LOOP-12")
@pytest.mark.case("C088", "C053")
def test_one_that_fails_cancels_no_other() -> None:
    session = Machine()
    session.answer(call("echo"), call("boom"), call("search"))
    session.fail("boom", FaultKind.INTERNAL)
    assert session.running() == ["t1_c1_1", "t1_c1_3"]
    session.ok("search", "found")
    session.ok("echo", "said")
    contents = dict(told(session))
    assert list(contents) == ["t1_c1_1", "t1_c1_2", "t1_c1_3"]
    assert contents["t1_c1_2"].startswith('{"error":{"kind":"internal"')
    assert session.owes_model().attempt == 1


@pytest.mark.req("LOOP-12")
def test_a_serial_group_runs_one_after_the_other_beside_the_rest() -> None:
    session = Machine()
    in_group = [call("echo", {"text": n}, serial_group="g") for n in (1, 2)]
    session.answer(in_group[0], call("search"), in_group[1], call("boom", serial_group="h"))
    assert session.running() == ["t1_c1_1", "t1_c1_2", "t1_c1_4"]
    session.fail("t1_c1_1")
    assert session.running() == ["t1_c1_2", "t1_c1_3", "t1_c1_4"]


@pytest.mark.req("LOOP-12")
def test_a_dependency_runs_first_wherever_it_stands() -> None:
    session = Machine()
    session.answer(call("pay", depends_on=("search",)), call("search"), call("echo"))
    assert session.running() == ["t1_c1_2", "t1_c1_3"]
    session.ok("search")
    assert session.running() == ["t1_c1_1", "t1_c1_3"]


@pytest.mark.req("LOOP-12")
@pytest.mark.parametrize("serial", [None, "g"])
def test_a_circle_of_dependencies_is_broken_at_the_first(serial: str | None) -> None:
    session = Machine()
    session.answer(
        call("echo", depends_on=("search",), serial_group=serial),
        call("search", depends_on=("echo",), serial_group=serial),
    )
    assert session.running() == ["t1_c1_1"]
    session.ok("echo")
    assert session.running() == ["t1_c1_2"]
    session.ok("search")
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-10", "LOOP-7")
@pytest.mark.parametrize("fails", [False, True])
def test_twins_are_executed_once_and_both_are_answered(*, fails: bool) -> None:
    session = Machine()
    session.answer(*(call("pay", {"amount": n}, effect=ONCE) for n in (5, 5.0, 7)))
    assert session.running() == ["t1_c1_1", "t1_c1_3"]
    if fails:
        session.fail("t1_c1_1", FaultKind.TIMEOUT)
    else:
        session.ok("t1_c1_1", "paid 5")
    twin = session.results()[-1]
    assert (twin.call_id, twin.executed) == ("t1_c1_2", False)
    assert twin.outcome is (Outcome.UNKNOWN if fails else Outcome.OK)
    session.ok("t1_c1_3")
    assert session.state.usage.tool_calls == 2
    assert len(told(session)) == 3


@pytest.mark.req("TOOL-10", "LOOP-6")
def test_polling_twins_both_run_unless_asking_changes_the_world() -> None:
    session = Machine()
    session.answer(*(call("search", {"job": 1}, polling=True) for _ in range(2)))
    assert len(session.running()) == 2
    session = Machine()
    session.answer(*(call("pay", {"n": 1}, polling=True, effect=ONCE) for _ in range(2)))
    assert len(session.running()) == 1


def test_all_intents_of_an_answer_are_decided_at_once() -> None:
    session = Machine()
    decided = session.answer(call("echo"), call("search"))
    assert [b.TYPE for b in decided].count("tool.intended") == 2
    assert len(owed(session.state)) == 2
