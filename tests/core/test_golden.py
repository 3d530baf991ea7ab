"""The order of a turn's events is part of the contract."""

import pytest

from app.core.events import ModelRequested, Purpose
from app.core.lifecycle import Phase, Status, StopReason
from app.core.plan import owed, resting
from tests.core.machine_kit import Machine, call, refolded, shape

OPENING = ["None→OBSERVE", "OBSERVE→THINK", "model.requested", "model.answered"]
TOOL_STEP = ["THINK→ACT", "tool.intended", "tool.finished", "ACT→REFLECT", "step.finished"]
AGAIN = ["REFLECT→OBSERVE", "OBSERVE→THINK", "model.requested", "model.answered"]
FINAL = ["THINK→REFLECT", "step.finished", "REFLECT→DONE", "turn.ended"]


@pytest.mark.req("LOOP-1", "LOOP-2")
def test_a_turn_with_one_tool_call_has_the_golden_order() -> None:
    session = Machine(task="What is 2+2?")
    session.answer(call("echo", {"text": "4"}))
    session.ok("echo", "4")
    session.answer(text="It is 4.")
    expected = ["session.created", "turn.started", "session.claimed"]
    assert shape(session.events) == expected + OPENING + TOOL_STEP + AGAIN + FINAL
    assert [e.seq for e in session.events] == list(range(1, len(session.events) + 1))
    assert session.end.status is Status.COMPLETED
    assert session.end.result.text == "It is 4."
    assert (session.end.result.complete, session.end.result.confidence) == (None, None)
    assert (session.end.usage.model_calls, session.end.usage.tool_calls) == (2, 1)
    assert refolded(session) == session.state
    assert owed(session.state) == ()
    assert resting(session.state) is not None


@pytest.mark.req("LOOP-1")
def test_steps_and_phases_are_those_after_the_event() -> None:
    session = Machine()
    session.answer(call("echo", {"text": "a"}))
    session.ok("echo")
    session.answer(text="done")
    by_request = [e for e in session.events if isinstance(e.body, ModelRequested)]
    assert [(e.step, e.phase) for e in by_request] == [(1, Phase.THINK), (2, Phase.THINK)]
    assert {e.turn for e in session.events[1:]} == {1}
    assert session.events[-1].phase is Phase.DONE


def test_a_request_names_its_ingredients_and_not_its_messages() -> None:
    session = Machine()
    (request,) = [e.body for e in session.events if isinstance(e.body, ModelRequested)]
    assert request.purpose is Purpose.STEP
    assert request.tools == ("echo", "search", "boom", "pay")
    assert request.messages == 2
    assert request.input_tokens == 100 + 50 + 5 + 4
    assert len(request.sha256) == 64


@pytest.mark.case("C012")
def test_calls_count_whatever_the_finish_reason_says() -> None:
    session = Machine()
    session.answer(*(call("echo", {"text": t}) for t in "abc"), text="let me look")
    for name in session.running():
        session.ok(name)
    assert not session.ends()
    session.answer(text="final")
    assert session.end.stop_reason is StopReason.FINAL_ANSWER
    assert session.end.result.text == "final"
    assert session.end.usage.tool_calls == 3


@pytest.mark.case("C051")
def test_a_crash_before_the_model_call_repeats_no_message() -> None:
    session = Machine(task="hi")
    session.claim(epoch=2)
    assert [getattr(m, "text", "") for m in session.state.history] == ["hi"]
    assert session.owes_model().attempt == 1
