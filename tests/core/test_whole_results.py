"""How a call ends, to the last field of its result: the trace and the bill are made of them."""

from dataclasses import replace

import pytest

from app.core.draft import Draft
from app.core.events import (
    Choice,
    Finish,
    GuardTripped,
    Limits,
    Outcome,
    StepFinished,
    TurnEnded,
    VerificationDecided,
)
from app.core.faults import FaultKind, Hint
from app.core.inputs import ApprovalGiven, ClientAnswered
from app.core.lifecycle import Phase, StopReason
from app.core.messages import ToolMessage, UserMessage
from app.core.phases.ending import FAULT_TOKENS
from app.core.phases.forking import Forking, GivenResult, forked
from app.core.phases.observe import consider
from app.core.step_events import ToolFinished
from tests.core.machine_kit import ONCE, Machine, call, error
from tests.core.test_guards_loops import LONG

PAY = call("pay", {"amount": 5}, effect=ONCE)


def test_a_fault_that_ends_the_turn_has_its_time_and_its_tokens() -> None:
    session = Machine()
    session.answer(call("echo"))
    session.fail("echo", FaultKind.SECURITY)
    (result,) = session.results()
    assert (result.executed, result.tokens, result.duration_ms) == (True, 20, 2.0)
    assert session.end.stop_reason is StopReason.SECURITY


def test_an_unknown_outcome_has_the_time_it_took() -> None:
    session = Machine()
    session.answer(PAY)
    session.fail("pay", FaultKind.TIMEOUT)
    assert (session.results()[0].outcome, session.results()[0].duration_ms) == (Outcome.UNKNOWN, 2)
    session.answer(call("pay", {"amount": 6}, effect=ONCE))
    assert session.running() == ["t1_c2_1"], "another payment is not the one in doubt"


def test_a_result_that_is_given_again_is_the_same_and_no_error() -> None:
    session = Machine()
    session.step_ok(call("search", {"q": "x"}), output=LONG)
    session.answer(call("search", {"q": "x"}))
    first, again = session.results()
    assert again.error is None
    assert (again.digest, again.executed) == (first.digest, False)


@pytest.mark.req("TOOL-10")
def test_what_a_person_knows_of_a_call_is_written_with_its_attempts() -> None:
    session = Machine()
    session.answer(PAY)
    session.fail("pay", FaultKind.UNAVAILABLE, sent=False)
    assert session.owes_tool("pay").attempt == 2
    session.claim(epoch=2)
    decided, *_ = session.verify("t1_c1_1", happened=True, output="receipt")
    assert decided == VerificationDecided("t1_c1_1", happened=True, output="receipt")
    assert (session.results()[0].output, session.results()[0].attempts) == ("receipt", 2)


def test_a_call_that_was_cut_has_its_attempts() -> None:
    session = Machine()
    session.answer(call("echo"))
    session.fail("echo", FaultKind.UNAVAILABLE)
    session.cancel()
    assert session.results()[0].attempts == 2


@pytest.mark.req("TOOL-17")
def test_a_denial_is_counted_with_its_words() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE, needs_approval=True))
    asked = session.open("pay").approval
    assert asked is not None
    session.give(
        ApprovalGiven(session.now_us, asked.approval_id, Choice.DENY, "not now", note_tokens=6)
    )
    assert session.results()[0].tokens == FAULT_TOKENS + 6


def test_what_the_caller_answers_is_written_whole() -> None:
    session = Machine()
    session.answer(call("locate", client=True), call("echo", client=True))
    given = ClientAnswered(
        session.now_us, "t1_c1_1", {"all": 1}, None, 7, "d", empty=True, notable=True, content="it"
    )
    session.give(given)
    assert session.results()[0] == ToolFinished(
        "t1_c1_1",
        "locate",
        Outcome.OK,
        output={"all": 1},
        content="it",
        tokens=7,
        digest="d",
        empty=True,
        notable=True,
    )
    session.give(replace(given, call_id="t1_c1_2", error="no signal"))
    assert error(session.results()[1]).retry_hint is Hint.OTHER_TOOL


@pytest.mark.req("STATE-7")
def test_a_result_that_is_given_to_a_fork_is_written_whole() -> None:
    parent = Machine()
    parent.answer(call("echo"))
    state = replace(parent.state, epoch=0)
    given = GivenResult("t1_c1_1", "out", 7, "d", empty=True, notable=True)
    events = forked(state, Forking(parent.now_us, "ses_1", state.seq, None, given))
    (result,) = [e.body for e in events if isinstance(e.body, ToolFinished)]
    assert (result.output, result.tokens, result.digest) == ("out", 7, "d")
    assert (result.empty, result.notable) == (True, True)


def test_a_history_that_no_provider_takes_ends_the_turn_and_says_why() -> None:
    state = Machine().state
    alone = ToolMessage("t1_c1_1", "w_1", "echo", "out", 1)
    draft = Draft(replace(state, phase=Phase.OBSERVE, request=None, history=(alone,)), state.at_us)
    consider(draft)
    (ended,) = [e.body for e in draft.events if isinstance(e.body, TurnEnded)]
    assert ended.stop_reason is StopReason.UNRECOVERABLE_ERROR
    assert ended.error is not None
    assert "a tool result without its call (w_1)" in ended.error.message


@pytest.mark.req("LOOP-1")
def test_after_an_empty_answer_the_model_is_told_so_in_a_step_without_calls() -> None:
    session = Machine()
    session.answer(text="")
    decided = session.answer(text=" ")
    (step,) = [b for b in decided if isinstance(b, StepFinished)]
    assert (step.calls, step.succeeded) == (0, 0)
    (trip,) = [b for b in decided if isinstance(b, GuardTripped)]
    note = session.state.history[-1]
    assert isinstance(note, UserMessage)
    assert note.text.startswith("Your last answer was empty.")
    assert (note.note, note.text, note.tokens) == (True, trip.note, trip.note_tokens)
    assert note.tokens > 0


@pytest.mark.req("API-9")
def test_a_closing_answer_may_come_by_the_finish_tool() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"))
    session.answer(
        text="aside", finish=Finish("that is it", complete=True, confidence=0.5, missing=None)
    )
    assert (session.end.result.text, session.end.result.confidence) == ("that is it", 0.5)
