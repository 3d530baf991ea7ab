"""The bounds of a turn: steps, errors, tokens, money, time, calls in a step, and how it closes."""

import pytest

from app.core import guards
from app.core.events import (
    GuardTripped,
    Limits,
    ModelRef,
    ModelRequested,
    Purpose,
    Usage,
)
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import StopReason
from app.core.plan import owed, time_left_us
from tests.core.machine_kit import ONCE, SECOND, Machine, bad_call, call

PRICED = ModelRef("m", price_input=10.0, price_output=100.0)


def requests(session: Machine) -> list[Purpose]:
    return [e.body.purpose for e in session.events if isinstance(e.body, ModelRequested)]


@pytest.mark.req("LOOP-3", "API-9")
def test_calls_without_end_stop_at_the_number_of_steps() -> None:
    session = Machine()
    for n in range(12):
        session.step_ok(call("echo", {"text": n}), output=f"r{n}")
    assert requests(session) == [Purpose.STEP] * 12 + [Purpose.CLOSING]
    session.answer(call("echo", {"text": "once more"}), text="so far so good")
    assert session.end.stop_reason is StopReason.MAX_STEPS
    assert session.end.result.text == "so far so good"
    assert session.state.step == 12
    assert session.end.usage.tool_calls == 12


@pytest.mark.req("LOOP-3")
def test_a_re_ask_is_a_step_like_any_other() -> None:
    session = Machine(Limits(max_steps=1))
    session.answer(text="")
    session.answer(text=" ")
    assert session.owes_model().purpose is Purpose.CLOSING
    assert session.state.step == 1


@pytest.mark.req("LOOP-5")
def test_three_steps_without_success_stop() -> None:
    session = Machine()
    session.answer(bad_call("echo"))
    session.answer(call("search", {"q": 1}))
    session.fail("search")
    session.answer(call("echo", {"text": 2}))
    session.fail("echo", FaultKind.NOT_FOUND)
    session.answer(text="I could not")
    assert session.end.stop_reason is StopReason.CONSECUTIVE_ERRORS


@pytest.mark.req("LOOP-5")
@pytest.mark.case("C032")
def test_unknown_tools_in_a_row_stop_and_any_success_resets() -> None:
    session = Machine(Limits(max_steps=20))
    unknown = Fault.of(FaultKind.NOT_FOUND, "There is no tool named 'serch'. There are: search.")
    for n in range(2):
        session.answer(call("serch", fault=unknown, raw=f'{{"n": {n}}}'))
    session.step_ok(call("echo", {"text": 1}), bad_call("echo"))
    assert session.state.errors_running == 0
    for n in range(3):
        session.answer(call("serch", fault=unknown, raw=f'{{"m": {n}}}'))
    session.answer(text="no such tool")
    assert session.end.stop_reason is StopReason.CONSECUTIVE_ERRORS


@pytest.mark.req("LOOP-4")
@pytest.mark.case("C159")
def test_a_request_that_does_not_fit_the_budget_is_never_sent() -> None:
    session = Machine(Limits(token_budget=1_000))
    session.answer(call("echo", {"text": "x"}), usage=Usage(900, 50, model_calls=1))
    session.ok("echo", "the fact")
    assert requests(session) == [Purpose.STEP]
    assert session.end.stop_reason is StopReason.TOKEN_BUDGET
    assert "the fact" in session.end.result.text


@pytest.mark.req("LOOP-4", "API-9")
def test_the_reserve_buys_the_closing_call() -> None:
    session = Machine(Limits(token_budget=1_000))
    session.answer(call("echo", {"text": "x"}), usage=Usage(440, 10, model_calls=1))
    session.ok("echo")
    assert requests(session) == [Purpose.STEP, Purpose.CLOSING]
    session.answer(text="closing words")
    assert session.end.stop_reason is StopReason.TOKEN_BUDGET
    assert session.end.result.text == "closing words"


@pytest.mark.req("LOOP-4")
def test_the_first_call_is_always_bought() -> None:
    session = Machine(Limits(token_budget=1))
    session.answer(text="short")
    assert session.end.stop_reason is StopReason.FINAL_ANSWER


@pytest.mark.req("LOOP-4")
@pytest.mark.case("C159")
def test_no_repetition_is_bought_over_the_budget() -> None:
    empty, failed = (Machine(Limits(token_budget=1_000)) for _ in range(2))
    empty.answer(text="", usage=Usage(950, 0, model_calls=1))
    fault = Fault.of(FaultKind.UNAVAILABLE, "cut off in the middle")
    failed.model_fails(fault, usage=Usage(950, 0, model_calls=1))
    for session in (empty, failed):
        assert requests(session) == [Purpose.STEP]
        assert session.end.stop_reason is StopReason.TOKEN_BUDGET


@pytest.mark.req("LOOP-4")
def test_money_is_counted_for_failed_attempts_too_and_stops_with_a_digest() -> None:
    session = Machine(Limits(max_cost=0.01), model=PRICED)
    fault = Fault.of(FaultKind.TIMEOUT, "no answer")
    session.model_fails(fault, usage=Usage(200, 10, model_calls=1))
    assert session.state.spent.cost == pytest.approx(0.003)
    session.answer(call("echo"), usage=Usage(300, 30, model_calls=1))
    session.ok("echo", "the fact")
    assert session.end.stop_reason is StopReason.MAX_COST
    assert requests(session) == [Purpose.STEP]
    assert "the fact" in session.end.result.text


def test_cached_input_has_its_own_price() -> None:
    cheap = ModelRef("m", price_input=10.0, price_output=0.0, price_cached=1.0)
    usage = Usage(1_000_000, 0, cached_tokens=500_000)
    assert guards.cost_of(cheap, usage) == pytest.approx(5.5)
    assert guards.cost_of(PRICED, usage) == pytest.approx(10.0)
    assert guards.cost_of(ModelRef("m"), usage) == 0.0


@pytest.mark.req("LOOP-9", "STATE-10", "API-9")
def test_the_total_time_closes_what_is_open_without_a_closing_call() -> None:
    session = Machine()
    session.answer(call("echo"), call("search"), call("pay", {"amount": 5}, effect=ONCE))
    session.ok("echo", "the fact")
    session.pass_s(91)
    session.ring("total_timeout")
    assert [r.outcome.value for r in session.results()] == ["ok", "cancelled", "unknown"]
    assert session.end.stop_reason is StopReason.TOTAL_TIMEOUT
    assert "the fact" in session.end.result.text
    assert owed(session.state) == ()


@pytest.mark.req("LOOP-9")
def test_a_timer_that_is_early_or_stale_or_unknown_means_nothing() -> None:
    session = Machine()
    session.pass_s(89)
    assert session.ring("total_timeout") == ()
    session.answer(text="done")
    assert session.ring("total_timeout") == ()
    session.tell()
    session.pass_s(10)
    session.prepare()
    assert session.ring("total_timeout") == ()
    assert session.ring("verification") == ()
    assert session.ring("lunch") == ()
    assert time_left_us(session.state, session.now_us) == 90 * SECOND


@pytest.mark.req("LOOP-9", "LOOP-10")
def test_a_closing_call_cut_by_the_clock_keeps_the_first_reason() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"), output="the fact")
    session.pass_s(91)
    session.ring("total_timeout")
    assert session.end.stop_reason is StopReason.MAX_STEPS
    tripped = [e.body.stop_reason for e in session.events if isinstance(e.body, GuardTripped)]
    assert tripped == [StopReason.MAX_STEPS]
    assert "the fact" in session.end.result.text


@pytest.mark.req("LOOP-15")
def test_calls_beyond_the_fifth_get_an_error_each() -> None:
    session = Machine()
    session.answer(*(call("echo", {"text": n}) for n in range(8)))
    assert len(session.running()) == 5
    beyond = session.results()
    assert [r.call_id for r in beyond] == ["t1_c1_6", "t1_c1_7", "t1_c1_8"]
    assert {r.error.kind for r in beyond if r.error} == {FaultKind.RATE_LIMITED}
    for which in session.running():
        session.ok(which)
    session.answer(*(call("echo", {"text": n}) for n in (5, 6, 7)))
    assert len(session.running()) == 3
