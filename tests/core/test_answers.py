"""Answers that end a turn, and those which are empty or incomplete."""

import pytest

from app.core.events import (
    Finish,
    GuardTripped,
    Limits,
)
from app.core.lifecycle import Status, StopReason
from app.core.messages import AssistantMessage
from tests.core.machine_kit import Machine, call, shape


def done(text: str = "done") -> Machine:
    session = Machine()
    session.answer(text=text)
    return session


@pytest.mark.req("LOOP-11")
@pytest.mark.case("C026", "C013")
def test_empty_answers_are_asked_again_twice_and_then_end() -> None:
    session, patient = Machine(), Machine()
    patient.step_ok(call("echo"))
    for one in (session, patient):
        one.answer(text="")
        assert one.owes_model().attempt == 2
        one.answer(text=" \n")
    patient.answer(text="42")
    assert patient.end.result.text == "42"
    session.answer(text="")
    assert session.end.stop_reason is StopReason.OUTPUT_INVALID
    assert session.end.status is Status.STOPPED
    assert shape(session.events).count("model.requested") == 2
    silent = [m for m in patient.state.history if isinstance(m, AssistantMessage)]
    assert all(m.calls or m.text.strip() for m in silent)


@pytest.mark.req("LOOP-11")
def test_finish_carries_completion_and_confidence_and_is_no_tool_call() -> None:
    session = Machine()
    session.answer(finish=Finish("the answer", complete=True, confidence=0.9))
    assert session.end.result.text == "the answer"
    assert (session.end.result.complete, session.end.result.confidence) == (True, 0.9)
    assert session.end.usage.tool_calls == 0
    assert "tool.intended" not in shape(session.events)


@pytest.mark.req("LOOP-11")
@pytest.mark.parametrize("missing", ["the date", None])
def test_an_incomplete_answer_goes_on_once(missing: str | None) -> None:
    session = Machine()
    half = Finish("half", complete=False, missing=missing)
    session.answer(finish=half)
    told = [e.body for e in session.events if isinstance(e.body, GuardTripped)]
    assert [t.guard for t in told] == ["incomplete_answer"]
    session.answer(finish=half)
    assert session.end.stop_reason is StopReason.FINAL_ANSWER
    assert session.end.result.complete is False
    last = Machine(Limits(max_steps=1))
    last.answer(finish=half)
    assert last.end.result.text == "half"


def test_a_tool_call_in_plain_text_is_flagged_and_not_executed() -> None:
    session = done('<tool_call>{"name": "pay"}</tool_call>')
    (flag,) = [e.body.guard for e in session.events if isinstance(e.body, GuardTripped)]
    assert flag == "unparsed_tool_call"
    assert session.end.usage.tool_calls == 0
