"""What a cycle is, and what only looks like one."""

import pytest

from app.core.events import Limits, Purpose
from app.core.guards import Repeat, Verdict, judge_call, within_cost
from app.core.values import EffectClass, ModelRef, Usage
from tests.core.machine_kit import ONCE, Machine, call
from tests.core.test_guards_loops import LONG, trips

pytestmark = pytest.mark.req("LOOP-6", "LOOP-7")


def test_a_cycle_is_caught_after_other_calls_too() -> None:
    session = Machine()
    for name in ("boom", "search", "echo", "search", "echo"):
        session.step_ok(call(name, {"q": 1}))
    assert trips(session) == ["loop_detected"]
    assert session.owes_model().purpose is Purpose.CLOSING


def test_one_call_again_and_again_is_no_cycle_of_two() -> None:
    """How often the same call may be made is a limit of its own."""
    session = Machine(Limits(loop_threshold=9, max_repeat=9))
    for _ in range(4):
        session.step_ok(call("search", {"q": 1}))
    assert trips(session) == []


def test_results_that_differ_are_no_repetition_however_many_there_are() -> None:
    session = Machine()
    for q in "abcd":
        session.step_ok(call("search", {"q": q}), output=f"{LONG} {q}", notable=True)
    assert [r.executed for r in session.results()] == [True] * 4
    assert trips(session) == []


def test_what_was_done_once_is_no_reason_against_a_call_that_only_reads() -> None:
    session = Machine()
    session.step_ok(call("pay", {"n": 1}, effect=ONCE), output="receipt")
    (done,) = session.state.once_done

    def judged(effect: EffectClass) -> Verdict:
        return judge_call(
            tool="pay",
            digest=done.digest,
            effect=effect,
            polling=False,
            max_repeat=2,
            actions=(),
            once_done=(done,),
        )

    assert judged(EffectClass.READ) == Verdict(Repeat.FRESH)
    assert judged(ONCE) == Verdict(Repeat.ONCE_DONE, done)


@pytest.mark.req("LOOP-5")
def test_a_call_may_spend_the_last_of_the_money() -> None:
    model = ModelRef("m", price_input=1_000_000.0, price_output=0.0)
    limits, spent = Limits(max_cost=3.0), Usage(cost=1.0)
    assert within_cost(limits, model, spent, 2)
    assert not within_cost(limits, model, spent, 3)
