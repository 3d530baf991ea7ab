"""Each guard against going round in circles, with a runaway of its own."""

import pytest

from app.core.canonical import action_digest
from app.core.events import GuardTripped, Limits, Outcome, Purpose
from app.core.faults import FaultKind
from app.core.lifecycle import Status, StopReason
from app.core.messages import ToolMessage
from tests.core.machine_kit import READ, Machine, bad_call, call, error

LONG = "a result that is long enough to mean something"


def trips(session: Machine) -> list[str]:
    return [e.body.guard for e in session.events if isinstance(e.body, GuardTripped)]


def closes(session: Machine, reason: StopReason) -> None:
    """The guard has tripped: one closing call without tools, then the end."""
    assert session.owes_model().purpose is Purpose.CLOSING
    assert trips(session)[-1] == reason.value
    session.answer(text="what I have")
    assert session.end.stop_reason is reason
    assert session.end.status is Status.STOPPED
    assert session.end.result.text == "what I have"
    assert session.end.result.complete is False


@pytest.mark.req("LOOP-7")
def test_a_second_time_is_withheld_with_the_result_and_a_third_stops() -> None:
    session = Machine()
    session.step_ok(call("search", {"q": "x"}), output=LONG)
    session.answer(call("search", {"q": "x"}))
    assert session.running() == []
    withheld = session.results()[-1]
    assert (withheld.executed, withheld.outcome) == (False, Outcome.OK)
    assert withheld.content is not None
    assert withheld.content.startswith(LONG)
    assert "change your strategy" in withheld.content
    session.answer(call("search", {"q": "x"}))
    closes(session, StopReason.REPEATED_ACTION)
    assert session.end.usage.tool_calls == 1


@pytest.mark.req("LOOP-7")
@pytest.mark.parametrize(("most", "executed"), [(1, 1), (2, 1), (3, 2)])
def test_max_repeat_says_how_often_an_action_may_run(most: int, executed: int) -> None:
    session = Machine(Limits(max_repeat=most, loop_threshold=9))
    for _ in range(most + 1):
        if session.state.stopping is None:
            session.step_ok(call("search", {"q": "x"}))
    closes(session, StopReason.REPEATED_ACTION)
    assert session.end.usage.tool_calls == executed


@pytest.mark.req("LOOP-7")
def test_calls_beside_the_one_that_stops_are_closed_too() -> None:
    session = Machine()
    session.step_ok(call("search", {"q": "x"}))
    session.step_ok(call("search", {"q": "x"}))
    session.answer(call("search", {"q": "x"}), call("echo", {"text": "y"}))
    assert [r.outcome for r in session.results()[-2:]] == [Outcome.ERROR, Outcome.CANCELLED]
    closes(session, StopReason.REPEATED_ACTION)


@pytest.mark.req("LOOP-7")
def test_an_action_between_makes_it_no_repetition() -> None:
    session = Machine()
    for q in ("x", "y", "x"):
        session.step_ok(call("search", {"q": q}), output=q)
    assert session.state.usage.tool_calls == 3
    assert trips(session) == []


@pytest.mark.req("LOOP-6")
@pytest.mark.parametrize(
    "variants",
    [
        [{"a": 1, "b": "x"}, {"b": "x", "a": 1.0}, {"b": " x ", "a": 1}],
        [{"a": "caf\u00e9"}, {"a": "cafe\u0301"}, {"a": " caf\u00e9 "}],
        [{"a": "two  words"}, {"a": "two words"}, {"a": "two\twords"}],
        [{"a": {"k": [1.0, 2]}}, {"a": {"k": [1, 2.0]}}, {"a": {"k": [1, 2]}}],
    ],
)
def test_differences_of_form_make_no_new_action(variants: list[dict[str, object]]) -> None:
    session = Machine()
    for arguments in variants:
        session.step_ok(call("search", arguments))
    closes(session, StopReason.REPEATED_ACTION)
    assert session.end.usage.tool_calls == 1


@pytest.mark.req("LOOP-6")
def test_ignored_arguments_do_not_hide_a_loop() -> None:
    session = Machine()
    for n in range(3):
        session.step_ok(call("search", {"q": "x", "at": n}, ignore=("at",)), output=f"r{n}")
    closes(session, StopReason.LOOP_DETECTED)


@pytest.mark.req("LOOP-6")
def test_indentation_in_several_lines_is_a_different_action() -> None:
    first = action_digest("python", {"code": "if x:\nprint(1)"})
    assert first != action_digest("python", {"code": "if x:\n    print(1)"})
    assert first == action_digest("python", {"code": "\nif x:  \nprint(1)\n"})


@pytest.mark.req("LOOP-6")
def test_a_to_b_to_a_to_b_is_caught_by_its_period() -> None:
    session = Machine()
    for name in ("search", "echo", "search", "echo"):
        assert trips(session) == []
        session.step_ok(call(name, {"q": 1}))
    closes(session, StopReason.LOOP_DETECTED)


@pytest.mark.req("LOOP-6")
def test_a_cycle_of_three_is_caught_and_one_with_new_results_is_not() -> None:
    limits = Limits(loop_threshold=9, max_steps=20)
    session, fresh = Machine(limits), Machine(limits)
    for n in range(6):
        name = ("search", "echo", "boom")[n % 3]
        session.step_ok(call(name, {"q": 1}), output=name)
        fresh.step_ok(call(name, {"q": 1}), output=f"{name} {n}")
    closes(session, StopReason.LOOP_DETECTED)
    assert trips(fresh) == []


@pytest.mark.req("LOOP-6")
def test_frequency_is_counted_over_the_window() -> None:
    wide, narrow = Machine(), Machine(Limits(loop_window=4))
    for session in (wide, narrow):
        for q in (1, 2, 1, 3, 1):
            session.step_ok(call("search", {"q": q}), output=f"r{q}")
    closes(wide, StopReason.LOOP_DETECTED)
    assert trips(narrow) == []


@pytest.mark.req("LOOP-6")
@pytest.mark.case("C113")
def test_polling_is_no_loop() -> None:
    session = Machine()
    for n in range(8):
        session.step_ok(call("search", {"job": 1}, polling=True), output=f"{n * 10} % done")
    session.answer(text="done")
    assert session.end.stop_reason is StopReason.FINAL_ANSWER
    assert trips(session) == []


@pytest.mark.req("LOOP-3", "LOOP-6")
@pytest.mark.case("C113")
def test_polling_for_ever_ends_by_the_number_of_steps() -> None:
    session = Machine(Limits(max_steps=5))
    for _ in range(5):
        session.step_ok(call("search", {"job": 1}, polling=True), output="pending")
    closes(session, StopReason.MAX_STEPS)


@pytest.mark.req("LOOP-7")
def test_equal_results_of_different_arguments_are_withheld_then_stop() -> None:
    session = Machine()
    for q in "ab":
        session.step_ok(call("search", {"q": q}), output=LONG, notable=True)
    session.answer(call("search", {"q": "c"}))
    assert session.running() == []
    assert "same result" in error(session.results()[-1]).message
    session.answer(call("search", {"q": "d"}))
    closes(session, StopReason.REPEATED_RESULT)
    assert session.end.usage.tool_calls == 2


@pytest.mark.req("LOOP-7")
def test_a_refused_call_is_not_the_warning_about_equal_results() -> None:
    session = Machine()
    for q in "ab":
        session.step_ok(call("search", {"q": q}), output=LONG, notable=True)
    session.answer(bad_call("search"))
    session.answer(call("search", {"q": "c"}))
    assert "same result" in error(session.results()[-1]).message
    assert trips(session) == []


@pytest.mark.req("LOOP-7")
def test_another_tool_or_another_result_makes_equal_results_harmless() -> None:
    session = Machine(Limits(max_steps=20))
    for name, q in (("search", 1), ("echo", 1), ("search", 2), ("search", 3)):
        session.step_ok(call(name, {"q": q}), output=LONG, notable=True)
    session.step_ok(call("echo", {"q": 2}), output="other than all of these", notable=True)
    session.step_ok(call("search", {"q": 4}), output="quite a different result", notable=True)
    session.step_ok(call("search", {"q": 5}), output="and one more that differs", notable=True)
    session.step_ok(call("search", {"q": 6}), output="and one more that differs", notable=True)
    assert all(r.executed for r in session.results())


@pytest.mark.req("LOOP-7")
@pytest.mark.case("C115")
def test_trivial_equal_results_mean_nothing() -> None:
    session = Machine()
    for tag in "abcd":
        session.step_ok(call("echo", {"tag": tag}), output=True)
    session.answer(text="tagged")
    assert all(r.executed for r in session.results())
    assert trips(session) == []


@pytest.mark.req("LOOP-8")
@pytest.mark.parametrize("output", ["", None, "fails"])
def test_a_tool_that_fails_or_gives_nothing_twice_is_withdrawn(output: str | None) -> None:
    session = Machine()
    for n in range(2):
        session.answer(call("boom", {"n": n}))
        if output == "fails":
            session.fail("boom", FaultKind.NOT_FOUND)
        else:
            session.ok("boom", output)
    assert trips(session) == ["tool_withdrawn"]
    assert [ref.name for ref in session.state.offered] == ["echo", "search", "pay"]
    assert "Change your strategy" in getattr(session.state.history[-1], "text", "")
    session.answer(call("boom", {"n": 9}))
    assert session.results()[-1].executed is False
    assert error(session.results()[-1]).kind is FaultKind.UNAVAILABLE
    assert trips(session).count("tool_withdrawn") == 1


@pytest.mark.req("LOOP-8")
def test_two_failing_tools_are_both_withdrawn() -> None:
    session = Machine(Limits(max_consecutive_errors=9))
    for n in range(2):
        session.answer(call("boom", {"n": n}), call("search", {"n": n}))
        session.fail("boom")
        session.fail("search")
    assert trips(session) == ["tool_withdrawn"] * 2
    assert session.state.withdrawn == ("boom", "search")


@pytest.mark.req("LOOP-8")
def test_faults_of_form_and_polling_withdraw_nothing() -> None:
    session = Machine(Limits(max_consecutive_errors=9, max_steps=20))
    for n in range(2):
        session.answer(bad_call("echo", raw=f"{n}"))
        session.answer(call("search", {"n": n}))
        session.fail("search", FaultKind.INVALID_ARGS)
        session.answer(call("boom", {"n": n}, polling=True))
        session.fail("boom")
    assert trips(session) == []


@pytest.mark.req("LOOP-6", "LOOP-5")
def test_different_unreadable_calls_are_different_actions() -> None:
    session = Machine()
    session.answer(*(bad_call("search", raw=f'{{"q{n}": ') for n in range(4)))
    assert trips(session) == []
    assert session.state.errors_running == 1


@pytest.mark.req("LOOP-6")
def test_the_same_unreadable_call_again_and_again_is_a_loop() -> None:
    session = Machine(Limits(max_consecutive_errors=9))
    for _ in range(3):
        session.answer(bad_call("search", raw="{"))
    closes(session, StopReason.LOOP_DETECTED)


@pytest.mark.req("LOOP-6", "LOOP-7")
def test_the_same_call_thrice_in_one_answer_is_one_action() -> None:
    session = Machine()
    session.answer(*(call("echo", {"text": "x"}) for _ in range(3)))
    assert session.running() == ["t1_c1_1"]
    session.ok("echo")
    tools = [m for m in session.state.history if isinstance(m, ToolMessage)]
    assert len(tools) == 3
    assert trips(session) == []
    session.answer(call("echo", {"text": "x"}, effect=READ))
    assert session.results()[-1].executed is False
    session.answer(call("echo", {"text": "x"}))
    closes(session, StopReason.REPEATED_ACTION)
