"""What single events do to a session, where no decision would notice that it is missing."""

from dataclasses import replace

import pytest

from app.core.events import NO_USAGE, EffectClass, Event, Outcome, Policy, Result, TurnEnded
from app.core.evolve import evolve
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import Phase, Status, StopReason
from app.core.messages import AssistantMessage, UserMessage
from app.core.state import State
from app.core.windows import LOST_TOKENS
from tests.core.forks import fork
from tests.core.machine_kit import ONCE, Machine, call
from tests.core.test_replay import same


def given_up(session: Machine, turn: int) -> State:
    """End a turn as one does that could not fold the session."""
    body = TurnEnded(Status.FAILED, StopReason.UNRECOVERABLE_ERROR, Result(), NO_USAGE)
    seq = session.state.seq + 1
    return evolve(session.state, Event(seq, turn, 1, Phase.DONE, session.now_us, body))


@pytest.mark.req("STATE-10", "TOOL-10")
def test_of_calls_left_open_only_a_sent_one_that_counts_is_in_doubt() -> None:
    session = Machine()
    pay = call("pay", {"n": 1}, effect=ONCE)
    later = call("pay", {"n": 2}, effect=ONCE, depends_on=("echo",))
    session.answer(pay, call("echo"), later)
    state = given_up(session, 1)
    assert [(a.outcome, a.executed, a.may_repeat) for a in state.actions] == [
        (Outcome.UNKNOWN, True, False),
        (Outcome.CANCELLED, True, True),
        (Outcome.CANCELLED, False, True),
    ]
    assert [a.call_id for a in state.once_done] == ["t1_c1_1"]
    assert {a.tokens for a in state.actions} == {LOST_TOKENS}
    assert state.actions[0].content == "The call was interrupted; its outcome is unknown."
    assert state.errors_running == 0, "the model has done nothing wrong"


def test_who_is_given_up_while_it_waits_waits_no_more() -> None:
    session = Machine()
    session.answer(call("pay", effect=EffectClass.ONCE, needs_approval=True))
    assert session.state.pending is not None
    assert given_up(session, 1).pending is None


def test_a_message_whose_turn_never_began_is_counted_with_the_history() -> None:
    session = Machine()
    session.answer(text="done")
    session.tell("more")
    before = session.state.context_tokens
    state = given_up(session, 2)
    assert state.history[-1] == UserMessage("more", 4)
    assert state.context_tokens == before + 4 + 4
    assert state.queue == ()


@pytest.mark.req("LOOP-8")
def test_a_tool_that_was_withdrawn_is_offered_again_in_the_next_turn() -> None:
    session = Machine()
    for q in "ab":
        session.answer(call("search", {"q": q}))
        session.fail("search")
    assert "search" in session.state.withdrawn
    session.cancel()
    session.tell("another question")
    session.prepare()
    assert session.state.withdrawn == ()
    assert "search" in {ref.name for ref in session.state.offered}


def test_the_history_has_the_arguments_in_the_form_that_the_provider_wants_back() -> None:
    session = Machine()
    session.answer(replace(call("echo", {"q": 1}), replay='{"q":1.0}'), call("search", {"q": 2}))
    said = session.state.history[-1]
    assert isinstance(said, AssistantMessage)
    assert [c.arguments for c in said.calls] == ['{"q":1.0}', '{"q":2}']


@pytest.mark.req("API-7")
@pytest.mark.parametrize(
    ("cancelled", "queue"),
    [(True, ["a", "now", "b", "c"]), (False, ["now", "a", "b", "c"])],
)
def test_an_interrupt_goes_before_all_but_a_turn_that_is_cancelled_already(
    cancelled: bool,  # noqa: FBT001 - a parameter of the table
    queue: list[str],
) -> None:
    session = Machine()
    session.answer(text="done")
    session.tell("a")
    if cancelled:
        session.cancel()
    for text in "bc":
        session.tell(text)
    session.tell("now", Policy.INTERRUPT)
    assert [text.text for text in session.state.queue] == queue


def failed() -> Machine:
    session = Machine()
    session.model_fails(Fault.of(FaultKind.REFUSED_REQUEST, "no"))
    session.resume()
    assert session.state.resuming == 1
    return session


def test_nothing_waits_in_a_closed_session() -> None:
    for session in (Machine(), failed()):
        session.cancel()
        session.tell("more")
        session.close()
        assert (session.state.queue, session.state.resuming) == ((), None)


def test_a_fork_does_not_go_on_with_a_turn_that_the_other_session_was_to_resume() -> None:
    parent = failed()
    child = fork(parent, len(parent.events), "another task")
    assert child.state.resuming is None


@pytest.mark.req("STATE-6")
def test_a_journal_may_end_with_a_wish_to_go_on_and_with_what_a_person_knew() -> None:
    same(failed())
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    session.claim(epoch=2)
    session.verify("t1_c1_1", happened=True, output="receipt")
    same(session)
