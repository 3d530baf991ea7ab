"""Messages for a turn that runs: to steer it, to interrupt it; in every phase and order."""

import pytest

from app.core.events import (
    NO_USAGE,
    Event,
    Finish,
    Limits,
    ModelRef,
    Outcome,
    Policy,
    Purpose,
    Result,
    TurnEnded,
    TurnStarted,
)
from app.core.evolve import evolve
from app.core.faults import FaultKind
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.messages import AssistantMessage, ToolMessage, UserMessage, sequence_fault
from app.core.plan import owed
from app.core.state import Pending
from tests.core.machine_kit import ONCE, Machine, call, shape

PAY = call("pay", {"amount": 5}, effect=ONCE, needs_approval=True)
STEER, INTERRUPT = Policy.STEER, Policy.INTERRUPT

pytestmark = pytest.mark.req("API-7")


def said(session: Machine) -> list[str]:
    return [m.text for m in session.state.history if isinstance(m, UserMessage)]


def queued(session: Machine) -> list[str]:
    return [text.text for text in session.state.queue]


@pytest.mark.req("CTX-7")
@pytest.mark.parametrize("when", ["THINK", "ACT", "WAITING"])
def test_a_steer_enters_after_the_results_of_the_step_in_which_it_comes(when: str) -> None:
    session = Machine()
    if when == "THINK":
        session.tell("in euros", STEER)
    session.answer(call("echo"), PAY)
    if when == "ACT":
        session.tell("in euros", STEER)
    session.ok("echo")
    if when == "WAITING":
        assert session.state.phase is Phase.WAITING
        session.tell("in euros", STEER)
        assert session.state.pending == Pending(PendingKind.APPROVAL, ("t1_c1_2",))
    assert said(session) == ["hi"]
    before = session.state.context_tokens
    session.deny("pay")
    kinds = [type(m) for m in session.state.history]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, ToolMessage, UserMessage]
    assert said(session) == ["hi", "in euros"]
    assert session.state.queue == ()
    assert session.state.context_tokens == before + (8 + 4) + (60 + 4) + (4 + 4)
    assert session.owes_model().attempt == 1
    session.answer(text="done")
    assert session.end.stop_reason is StopReason.FINAL_ANSWER
    assert owed(session.state) == ()


@pytest.mark.parametrize("complete", [None, True, False])
def test_a_final_answer_is_not_the_last_when_a_steer_is_waiting(*, complete: bool | None) -> None:
    session = Machine()
    session.tell("and in euros?", STEER)
    finish = None if complete is None else Finish("it is 5", complete)
    session.answer(text="it is 5", finish=finish)
    assert session.state.ended is None
    assert session.state.history[-2:] == (
        AssistantMessage("it is 5", 10),
        UserMessage("and in euros?", 4),
    )
    session.answer(text="it is 4.60")
    assert session.end.result.text == "it is 4.60"
    assert session.state.turn == 1


@pytest.mark.parametrize(
    ("limits", "model"),
    [
        (Limits(max_steps=1), ModelRef("m")),
        (Limits(token_budget=395), ModelRef("m")),
        (Limits(max_cost=0.00028), ModelRef("m", price_input=1.0, price_output=2.0)),
        (Limits(), ModelRef("m", context_window=200)),
    ],
)
def test_where_no_step_is_left_the_answer_stands_and_the_steer_starts_the_next_turn(
    limits: Limits, model: ModelRef
) -> None:
    session = Machine(limits, model=model)
    session.tell("later", Policy.ENQUEUE)
    session.tell("in euros", STEER)
    session.answer(text="it is 5")
    assert session.end.status is Status.COMPLETED
    assert session.end.result.text == "it is 5"
    assert queued(session) == ["in euros", "later"]
    session.prepare()
    assert said(session) == ["hi", "in euros"]


def test_after_the_last_step_the_closing_answer_takes_it_up() -> None:
    session = Machine(Limits(max_steps=1))
    session.answer(call("echo"))
    session.tell("in euros", STEER)
    session.ok("echo")
    assert session.owes_model().purpose is Purpose.CLOSING
    assert said(session) == ["hi", "in euros"]
    session.tell("and short", STEER)
    session.answer(text="as far as I got")
    assert session.end.stop_reason is StopReason.MAX_STEPS
    assert queued(session) == ["and short"]
    session.prepare()
    session.answer(text="short")
    assert said(session) == ["hi", "in euros", "and short"]


@pytest.mark.parametrize(("short", "bought"), [(0, True), (1, False)])
def test_a_closing_call_is_bought_only_where_the_steer_fits_as_well(
    short: int, *, bought: bool
) -> None:
    known = 100 + 5 + 4  # prompt and task; the tools are not sent
    closing = known + (10 + 4) + (8 + 4) + (4 + 4) + (36 + 4)
    spent = (100 + 50 + 5 + 4) + 10
    session = Machine(Limits(max_steps=1, token_budget=spent + closing + 64 - short))
    session.answer(call("echo"))
    session.tell("in euros", STEER)
    session.ok("echo")
    assert (session.state.ended is None) is bought
    assert queued(session) == ([] if bought else ["in euros"])


def test_what_steers_takes_the_turn_that_is_open_and_what_is_enqueued_waits() -> None:
    session = Machine()
    session.tell("a", Policy.ENQUEUE)
    session.tell("b", STEER)
    session.tell("c", STEER)
    session.answer(call("echo"))
    session.ok("echo")
    assert said(session) == ["hi", "b", "c"]
    assert queued(session) == ["a"]


def test_between_turns_a_steer_joins_the_turn_that_begins_next() -> None:
    session = Machine()
    session.answer(text="done")
    session.tell("a", Policy.ENQUEUE)
    session.tell("b", STEER)
    session.prepare()
    assert said(session) == ["hi", "a", "b"]
    session.answer(text="done")
    session.tell("c", STEER)
    session.prepare()
    assert said(session) == ["hi", "a", "b", "c"]


def test_a_steer_after_an_empty_answer_stands_after_the_note() -> None:
    session = Machine()
    session.tell("hello?", STEER)
    session.answer(text=" ")
    session.answer(text=" ")
    assert said(session)[-1] == "hello?"
    assert session.owes_model().purpose is Purpose.STEP


@pytest.mark.req("API-8", "STATE-10", "CTX-7")
@pytest.mark.parametrize("when", ["THINK", "ACT", "WAITING", "CLOSING"])
def test_an_interrupt_ends_the_turn_and_its_text_is_the_next_one(when: str) -> None:
    session = Machine(Limits(max_steps=1) if when == "CLOSING" else None)
    session.tell("later", Policy.ENQUEUE)
    if when != "THINK":
        session.answer(call("echo"), *([PAY] if when == "WAITING" else []))
    if when in {"WAITING", "CLOSING"}:
        session.ok("echo")
    decided = [body.TYPE for body in session.tell("stop, do this", INTERRUPT)]
    assert decided[0] == "message.received"
    assert decided[-2:] == ["phase.entered", "turn.ended"]
    assert session.end.status is Status.CANCELLED
    assert sequence_fault(session.state.history) is None
    assert session.state.pending is None
    assert queued(session) == ["stop, do this", "later"]
    session.prepare()
    assert said(session)[-1] == "stop, do this"
    session.answer(text="done")
    session.prepare()
    assert said(session)[-1] == "later"


@pytest.mark.req("TOOL-10", "STATE-10")
def test_an_interrupted_once_call_in_flight_is_unknown_and_its_answer_comes_too_late() -> None:
    session = Machine()
    session.answer(call("pay", {"amount": 5}, effect=ONCE), call("echo"))
    key = session.owes_tool("pay").key
    session.tell("stop", INTERRUPT)
    assert [r.outcome for r in session.results()] == [Outcome.UNKNOWN, Outcome.CANCELLED]
    assert key not in {e.key for e in owed(session.state)}


def test_interrupts_keep_their_order_before_all_others() -> None:
    session = Machine()
    session.tell("a", Policy.ENQUEUE)
    session.tell("b", STEER)
    session.tell("c", INTERRUPT)
    session.tell("d", Policy.ENQUEUE)
    session.tell("e", INTERRUPT)
    assert queued(session) == ["c", "e", "b", "a", "d"]
    session.prepare()
    assert said(session) == ["hi", "c", "b"]
    session.tell("f", INTERRUPT)
    assert len(session.ends()) == 2
    assert queued(session) == ["e", "f", "a", "d"]


def test_an_interrupt_ends_a_stopped_turn_that_was_to_go_on() -> None:
    session = Machine(Limits(max_steps=1))
    session.answer(call("echo"))
    session.ok("echo")
    session.answer(text="so far")
    session.resume(Limits())
    session.tell("rather this", INTERRUPT)
    session.tell("or this", INTERRUPT)
    assert shape(session.events)[-3:] == ["message.received", "guard.tripped", "message.received"]
    session.prepare()
    assert session.end.status is Status.CANCELLED
    session.prepare()
    started = session.events[-4].body
    assert isinstance(started, TurnStarted)
    assert (started.text, started.continues) == ("rather this", None)
    assert queued(session) == ["or this"]


def test_a_cancel_before_a_turn_began_is_for_that_one_and_not_for_the_interrupt() -> None:
    session = Machine()
    session.answer(text="done")
    session.tell("a", Policy.ENQUEUE)
    session.cancel()
    session.tell("b", INTERRUPT)
    assert queued(session) == ["a", "b"]
    session.prepare()
    assert session.end.status is Status.CANCELLED
    session.prepare()
    assert said(session)[-1] == "b"
    assert session.state.ended is None


@pytest.mark.parametrize("policy", Policy)
def test_nothing_is_taken_where_no_turn_can_follow(policy: Policy) -> None:
    session = Machine()
    session.answer(call("echo"))
    session.fail("echo", FaultKind.SECURITY)
    assert session.tell("go on", policy) == ()
    closed = Machine()
    closed.close()
    assert closed.tell("go on", policy) == ()


@pytest.mark.req("API-7", "STATE-10")
def test_a_turn_that_was_given_up_before_it_began_takes_its_message_with_it() -> None:
    """The end was written from the row alone (poison); what else was said is for the next turn."""
    session = Machine()
    session.answer(text="done")
    session.tell("first")
    session.tell("second")
    body = TurnEnded(Status.FAILED, StopReason.UNRECOVERABLE_ERROR, Result(), NO_USAGE)
    event = Event(session.state.seq + 1, 2, 0, Phase.DONE, session.now_us, body)
    session.state = evolve(session.state, event)
    assert [text.text for text in session.state.queue] == ["second"]
    session.prepare()
    users = [m.text for m in session.state.history if isinstance(m, UserMessage)]
    assert users == ["hi", "first", "second"]
    assert session.state.turn == 3
