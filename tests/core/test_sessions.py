"""From turn to turn: messages, resume, cancel, close; and what is refused as impossible."""

from dataclasses import replace

import pytest

from app.core.draft import Draft, IllegalTransitionError
from app.core.events import (
    Limits,
    ModelAnswered,
    ModelRequested,
    TurnStarted,
    Usage,
)
from app.core.evolve import BrokenJournalError, evolve, fold
from app.core.faults import Fault, FaultKind
from app.core.inputs import Claimed, ModelReturned
from app.core.lifecycle import Phase, Status, StopReason
from app.core.machine import decide
from app.core.messages import ToolMessage, UserMessage
from app.core.plan import owed, resting
from tests.core.machine_kit import ONCE, SECOND, Machine, bad_call, begun, call, shape


def done(text: str = "done") -> Machine:
    session = Machine()
    session.answer(text=text)
    return session


def failed(kind: FaultKind) -> Machine:
    session = Machine()
    session.model_fails(Fault.of(kind, "no"))
    return session


def test_a_new_session_owes_nothing_until_it_is_claimed() -> None:
    session = Machine(claimed=False)
    assert owed(session.state) == ()
    assert resting(session.state) is None
    session.claim()
    assert session.owes_model().attempt == 1


@pytest.mark.req("API-7")
@pytest.mark.case("C084")
def test_a_message_while_running_is_answered_by_the_next_turn() -> None:
    session = Machine()
    session.tell("second")
    session.tell("third")
    session.answer(text="first answer")
    assert session.events[-1].body.TYPE == "turn.ended"
    for n, text in enumerate(("second", "third"), start=2):
        session.prepare()
        assert session.state.turn == n
        assert session.state.history[-1] == UserMessage(text, 4)
        session.answer(text="next")
    assert owed(session.state) == ()
    assert shape(session.events).count("message.received") == 2
    assert [e.status for e in session.ends()] == [Status.COMPLETED] * 3


@pytest.mark.req("API-7")
def test_a_new_turn_starts_afresh_with_its_own_trace_and_tools() -> None:
    session = Machine(Limits(max_steps=2))
    session.step_ok(call("echo"))
    session.answer(text="one")
    session.tell()
    session.prepare()
    state = session.state
    assert (state.step, state.actions, state.facts, state.best) == (1, (), (), "")
    assert state.spent == Usage()
    assert state.usage.model_calls == 2
    assert state.tools[0].version == 2
    assert state.trace is not None
    assert (state.trace.trace_id, state.turn_link) == ("11" * 16, None)


@pytest.mark.req("API-8")
def test_close_ends_the_turn_and_lets_none_follow() -> None:
    session = Machine()
    session.tell()
    session.close()
    assert shape(session.events)[-2:] == ["turn.ended", "session.closed"]
    assert owed(session.state) == ()
    for moot in (session.close, session.tell, session.resume, session.cancel):
        assert moot() == ()
    idle = done()
    assert [b.TYPE for b in idle.close()] == ["session.closed"]


def test_an_ended_session_takes_only_messages_resume_and_close() -> None:
    session = done()
    session.pass_s(1_000)
    for timer in ("total_timeout", "verification"):
        assert session.ring(timer) == ()
    assert session.cancel() == ()
    assert session.resume(Limits(max_steps=50)) == ()
    assert session.verify("t1_c1_1", happened=True) == ()
    assert resting(session.state) is not None


@pytest.mark.req("LOOP-13", "API-4")
def test_raised_limits_go_on_with_the_counters_in_a_turn_of_their_own() -> None:
    session = Machine(Limits(max_steps=2))
    for n in range(2):
        session.step_ok(call("echo", {"text": n}), output=f"r{n}")
    session.answer(text="so far")
    spent, actions = session.state.spent, session.state.actions
    assert session.resume() == ()
    session.resume(Limits(max_steps=4))
    assert session.resume(Limits(max_steps=9)) == ()
    session.tell("later")
    session.prepare()
    started = [e.body for e in session.events if isinstance(e.body, TurnStarted)][-1]
    assert started.continues == 1
    assert started.link == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    state = session.state
    assert (state.turn, state.step, state.spent, state.actions) == (2, 3, spent, actions)
    assert state.history[-1] == UserMessage("Go on.", 3, note=True)
    session.step_ok(call("echo", {"text": 2}))
    session.step_ok(call("echo", {"text": 3}))
    session.answer(text="all")
    assert [e.stop_reason for e in session.ends()] == [StopReason.MAX_STEPS] * 2
    session.prepare()
    assert session.state.history[-1] == UserMessage("later", 4)


@pytest.mark.req("LOOP-13", "LOOP-3")
def test_limits_that_were_not_raised_enough_buy_no_further_step() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"))
    session.answer(text="so far")
    session.resume(Limits(max_steps=1, token_budget=200_000))
    session.prepare()
    session.answer(text="still that")
    assert session.state.step == 1
    assert session.end.stop_reason is StopReason.MAX_STEPS


@pytest.mark.req("LOOP-13", "LOOP-7")
def test_a_call_that_the_clock_cut_may_be_made_again_after_a_resume() -> None:
    session = Machine()
    session.answer(call("search", {"q": "x"}))
    session.pass_s(91)
    session.ring("total_timeout")
    errors = session.state.errors_running
    session.resume(Limits(total_timeout_s=300))
    session.prepare()
    assert session.state.active_us == 91 * SECOND
    session.answer(call("search", {"q": "x"}))
    assert session.running() == ["t2_c2_1"]
    assert errors == 0


@pytest.mark.req("API-4")
@pytest.mark.parametrize(
    ("kind", "resumable"),
    [
        (FaultKind.PERMISSION, True),
        (FaultKind.REFUSED_REQUEST, True),
        (FaultKind.SECURITY, False),
    ],
)
def test_a_failed_turn_goes_on_unless_for_security(kind: FaultKind, *, resumable: bool) -> None:
    session = failed(kind)
    assert bool(session.resume()) is resumable
    if resumable:
        session.prepare()
        session.answer(text="now it works")
        assert session.end.status is Status.COMPLETED


def test_after_a_stop_for_security_no_turn_follows_though_one_was_queued() -> None:
    session = Machine()
    session.tell("queued before")
    session.model_fails(Fault.of(FaultKind.SECURITY, "no"))
    assert session.end.stop_reason is StopReason.SECURITY
    assert owed(session.state) == ()
    assert session.tell("after") == ()


def test_a_resume_is_moot_while_the_next_turn_is_owed() -> None:
    session = failed(FaultKind.PERMISSION)
    session.tell("instead")
    assert session.resume() == ()
    session.prepare()
    assert session.state.history[-1] == UserMessage("instead", 4)


@pytest.mark.req("API-8")
@pytest.mark.case("C070")
def test_a_cancel_before_the_turn_began_ends_it_as_it_begins() -> None:
    session = done()
    session.tell("never mind")
    assert [b.TYPE for b in session.cancel()] == ["guard.tripped"]
    assert session.cancel() == ()
    session.tell("but this")
    session.prepare()
    assert (session.state.turn, session.end.status) == (2, Status.CANCELLED)
    assert not [e for e in session.events if e.turn == 2 and isinstance(e.body, ModelRequested)]
    session.prepare()
    session.answer(text="this")
    assert session.end.status is Status.COMPLETED


@pytest.mark.req("API-8")
@pytest.mark.case("C070")
def test_an_answer_after_the_cancel_changes_nothing() -> None:
    session = Machine()
    late = session.owes_model()
    session.cancel()
    ended = session.state
    answer = ModelAnswered("too late", (), Usage(1, 1, model_calls=1), "stop", 1)
    given = ModelReturned(session.now_us, late.key, answer)
    assert decide(ended, given).events == ()
    assert ended.history == (UserMessage("hi", 5),)


@pytest.mark.req("CTX-7")
def test_a_history_out_of_order_is_never_sent() -> None:
    orphan = ToolMessage("t0_c0_1", "w", "echo", "x", 1)
    session = Machine(claimed=False)
    session.state = replace(session.state, history=(orphan, *session.state.history))
    session.events.clear()
    decision = decide(session.state, Claimed(session.now_us, "wrk_1", 1, 1))
    assert decision.state.ended is not None
    assert decision.state.ended.reason is StopReason.UNRECOVERABLE_ERROR
    assert "model.requested" not in shape(list(decision.events))


@pytest.mark.req("CTX-7", "API-9")
def test_nor_is_it_sent_by_the_closing_call() -> None:
    session = Machine(Limits(max_steps=1))
    orphan = ToolMessage("t0_c0_1", "w", "echo", "x", 1)
    broken = replace(session.state, history=(orphan, *session.state.history))
    refused = replace(bad_call("echo"), call_id="t1_c1_1", wire_id="w_1")
    answer = ModelAnswered("", (refused,), Usage(1, 1, model_calls=1), "tool_calls", 1)
    given = ModelReturned(session.now_us, session.owes_model().key, answer)
    state = decide(broken, given).state
    assert state.ended is not None
    assert state.ended.reason is StopReason.MAX_STEPS
    assert state.spent.model_calls == 1


@pytest.mark.req("LOOP-1")
def test_an_input_outside_the_table_is_a_typed_error() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    draft = Draft(session.state, 0)
    session.state = replace(session.state, phase=Phase.OBSERVE)
    with pytest.raises(IllegalTransitionError, match="ToolReturned cannot come in phase OBSERVE"):
        session.ok("pay")
    with pytest.raises(IllegalTransitionError, match="no transition from ACT to OBSERVE"):
        draft.move(Phase.OBSERVE)


def test_a_journal_has_a_beginning_and_no_gap() -> None:
    created, started = begun().events
    with pytest.raises(BrokenJournalError, match=r"begins with session\.created"):
        evolve(None, started)
    with pytest.raises(BrokenJournalError, match="Event 1 does not follow 1"):
        fold((created, created))
    assert fold(()) is None
