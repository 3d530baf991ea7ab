"""What comes too late, or for something else, decides nothing."""

import pytest

from app.core.events import Choice, Policy
from app.core.faults import FaultKind
from app.core.inputs import (
    ApprovalGiven,
    CancelAsked,
    Claimed,
    ClientAnswered,
    CloseAsked,
    Input,
    ResumeAsked,
    StatusChecked,
    Told,
    ToolReturned,
    TurnPrepared,
    Verified,
)
from app.core.lifecycle import Phase, Ruling, Status, Verb, rule
from app.core.machine import LEGAL, decide
from app.core.messages import ToolMessage
from tests.core.machine_kit import ONCE, TRACE, Machine, call


def prepared(at_us: int) -> TurnPrepared:
    return TurnPrepared(at_us, TRACE, (), 0, "Go on.", 3)


def test_a_turn_that_was_prepared_twice_begins_once() -> None:
    session = Machine()
    session.answer(text="done")
    session.tell()
    session.prepare()
    assert session.give(prepared(session.now_us)) == ()


def test_a_turn_that_was_prepared_while_the_session_was_closed_does_not_begin() -> None:
    session = Machine()
    session.answer(text="done")
    session.tell()
    session.close()
    assert session.give(prepared(session.now_us)) == ()


@pytest.mark.req("TOOL-10")
def test_a_word_about_another_call_is_not_taken_for_the_one_in_doubt() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE), call("echo"))
    session.claim(epoch=2)
    for other in ("t9_c9_9", "t1_c1_2"):
        word = Verified(session.now_us, other, happened=True, output=None, tokens=0)
        assert decide(session.state, word).events == ()


def test_who_does_not_know_of_an_owner_that_is_gone_may_not_resume() -> None:
    assert rule(Verb.RESUME, Status.RUNNING) is Ruling.CONFLICT


def test_the_model_reads_what_the_tool_shows_and_not_the_whole_output() -> None:
    session = Machine()
    session.answer(call("echo"))
    effect = session.owes_tool("echo")
    given = ToolReturned(
        session.now_us, effect.key, effect.call.call_id, {"all": 1}, "some", 2, "d", 1.0
    )
    session.give(given)
    assert (session.results()[0].output, session.results()[0].content) == ({"all": 1}, "some")
    shown = session.state.history[-1]
    assert isinstance(shown, ToolMessage)
    assert shown.content == "some"


@pytest.mark.req("TOOL-10")
def test_what_a_tool_says_twice_of_a_call_is_heard_once() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE, checkable=True), call("echo"))
    session.fail("pay", FaultKind.TIMEOUT)
    key = session.owes_check("pay").key
    said = StatusChecked(session.now_us, key, "t1_c1_1", None, None, 0, None, 0.0)
    assert session.give(said) != ()
    assert session.give(said) == ()


OUTSIDE = (
    Claimed(1, "wrk_2", 2, 15_000_000),
    Told(1, "more", 4, Policy.ENQUEUE),
    CancelAsked(1),
    CloseAsked(1),
    ResumeAsked(1, None),
    Verified(1, "t1_c1_1", happened=True, output=None, tokens=0),
    ApprovalGiven(1, "apr_1_t1_c1_1", Choice.DENY),
    ClientAnswered(1, "t1_c1_1", "out", None, 1, "d"),
)


@pytest.mark.req("LOOP-1")
@pytest.mark.parametrize("given", OUTSIDE, ids=lambda given: type(given).__name__)
def test_who_asks_from_outside_may_do_so_in_any_phase(given: Input) -> None:
    sessions = [Machine(claimed=False), Machine(), Machine(), Machine(), Machine()]
    sessions[2].answer(call("echo"))
    sessions[3].answer(call("echo", needs_approval=True))
    sessions[4].answer(text="done")
    phases = [None, Phase.THINK, Phase.ACT, Phase.WAITING, Phase.DONE]
    assert [session.state.phase for session in sessions] == phases
    for session in sessions:
        decide(session.state, given)
    assert LEGAL[type(given)] == {None, *Phase}
