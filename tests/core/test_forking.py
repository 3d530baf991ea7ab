"""Forks: another session goes on from any event of this one (STATE-7)."""

import pytest

from app.core.draft import IllegalTransitionError
from app.core.events import (
    Event,
    Limits,
    Outcome,
    Policy,
    Purpose,
    SessionForked,
    ToolFinished,
    ToolIntended,
    TurnEnded,
)
from app.core.evolve import fold
from app.core.faults import FaultKind
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.messages import ToolMessage, UserMessage
from app.core.phases.forking import Forking, GivenResult, boundary, forked
from app.core.plan import owed
from app.core.state import Pending, QueuedText
from tests.core.forks import fork
from tests.core.machine_kit import ONCE, Machine, call, error, shape

PAY = call("pay", {"amount": 5}, effect=ONCE)

pytestmark = pytest.mark.req("STATE-7")


def lived() -> Machine:
    """Return a session of two turns; in the first it looked something up and paid."""
    session = Machine()
    session.answer(call("echo"), PAY)
    session.ok("echo", "a fact")
    session.ok("pay", "paid")
    session.answer(text="done")
    session.tell("more")
    session.prepare()
    session.answer(text="more is done")
    return session


def seq_of(session: Machine, kind: type, n: int = 0) -> int:
    return [e.seq for e in session.events if isinstance(e.body, kind)][n]


def at(session: Machine, *, phase: Phase) -> int:
    """Return the last event in this phase of the first turn."""
    return [e.seq for e in session.events if e.phase is phase and e.turn == 1][-1]


def after(child: Machine) -> list[str]:
    """Return what the fork wrote itself."""
    return shape(child.events)[seq_of(child, SessionForked, -1) - 1 :]


def test_the_first_events_are_taken_and_the_next_says_from_where() -> None:
    parent = lived()
    cut = seq_of(parent, ToolFinished)
    child = fork(parent, cut)
    assert [e.body for e in child.events[1:cut]] == [e.body for e in parent.events[1:cut]]
    mark = child.events[cut].body
    assert mark == SessionForked("ses_1", cut, 1)
    assert child.state.session_id == "ses_1f"
    assert child.state.created.parent == "ses_1"


def test_from_the_middle_of_a_step_open_calls_are_closed_and_the_model_goes_on() -> None:
    child = fork(lived(), seq_of(lived(), ToolFinished))
    assert after(child)[:3] == ["session.forked", "tool.finished", "ACT→REFLECT"]
    cut = child.results()[-1]
    assert (cut.call_id, cut.outcome, cut.executed) == ("t1_c1_2", Outcome.CANCELLED, False)
    assert "not made here" in error(cut).message
    first = next(m for m in child.state.history if isinstance(m, ToolMessage))
    assert first.content == "a fact"
    assert child.owes_model().attempt == 1
    assert child.state.errors_running == 0


def test_calls_that_the_fork_cut_are_no_error_of_the_step() -> None:
    parent = Machine(Limits(max_consecutive_errors=1))
    parent.answer(call("echo"), PAY)
    child = fork(parent, len(parent.events))
    assert [r.outcome for r in child.results()] == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert child.state.errors_running == 0
    assert child.owes_model().purpose is Purpose.STEP
    failing = Machine(Limits(max_consecutive_errors=1))
    failing.answer(call("echo"), PAY)
    failing.fail("echo")
    assert fork(failing, len(failing.events)).state.stopping is StopReason.CONSECUTIVE_ERRORS


@pytest.mark.parametrize("phase", [Phase.OBSERVE, Phase.THINK, Phase.REFLECT, Phase.DONE])
def test_between_a_question_and_its_answer_it_goes_back_to_the_last_boundary(phase: Phase) -> None:
    parent = Machine()
    parent.answer(call("echo"))
    parent.ok("echo", "a fact")
    parent.answer(call("search"))
    parent.ok("search", "another")
    parent.answer(text="done")
    cut = at(parent, phase=phase)
    if phase is Phase.DONE:
        cut -= 1  # the turn has not ended yet
    child = fork(parent, cut)
    mark = child.events[seq_of(child, SessionForked) - 1].body
    assert isinstance(mark, SessionForked)
    taken = parent.events[mark.at_seq - 1]
    assert mark.at_seq < cut or phase is Phase.OBSERVE
    assert taken.phase is Phase.OBSERVE
    assert child.owes_model().attempt == 1
    assert child.state.step == 3


def test_where_the_session_waits_what_it_asked_for_is_left_behind() -> None:
    parent = Machine()
    asks = call("pay", {"amount": 5}, effect=ONCE, needs_approval=True)
    parent.answer(call("echo"), asks, call("locate", client=True))
    parent.ok("echo")
    assert parent.state.phase is Phase.WAITING
    child = fork(parent, len(parent.events))
    outcomes = [r.outcome for r in child.results()]
    assert outcomes == [Outcome.OK, Outcome.CANCELLED, Outcome.CANCELLED]
    assert child.state.pending is None
    assert child.owes_model().attempt == 1


@pytest.mark.parametrize("kind", ["proposed", "in flight", "caller", "finished"])
def test_a_call_can_be_given_another_result(kind: str) -> None:
    parent = Machine()
    locate = call("locate", client=True)
    parent.answer(call("echo"), locate if kind == "caller" else call("echo", {"n": 2}))
    if kind == "finished":
        parent.ok("t1_c1_2", "the old one")
        parent.ok("t1_c1_1")
        parent.answer(text="done")
    seq = len(parent.events) if kind != "proposed" else seq_of(parent, ToolIntended) - 1
    child = fork(parent, seq, result=("t1_c1_2", "the new one"))
    given = child.results()[-1]
    assert (given.outcome, given.output) == (Outcome.OK, "the new one")
    assert [r.outcome for r in child.results()] == [Outcome.CANCELLED, Outcome.OK]
    assert getattr(child.state.history[-1], "content", None) == "the new one"
    assert child.owes_model().attempt == 1


def test_with_a_task_the_open_turn_ends_and_the_task_is_the_next() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, ToolFinished), task="rather this")
    assert after(child)[-3:] == ["ACT→DONE", "turn.ended", "message.received"]
    child.prepare()
    assert child.state.turn == 2
    assert child.state.history[-1] == UserMessage("rather this", 4)
    child.answer(text="done")
    assert [e.status for e in child.ends()] == [Status.CANCELLED, Status.COMPLETED]


def test_between_turns_it_waits_for_a_message_or_starts_with_its_task() -> None:
    parent = lived()
    ended = seq_of(parent, TurnEnded)
    child = fork(parent, ended)
    assert after(child) == ["session.forked"]
    assert owed(child.state) == ()
    child.tell("other")
    child.prepare()
    assert child.state.history[-1] == UserMessage("other", 4)
    with_task = fork(parent, ended, task="other")
    with_task.prepare()
    assert with_task.state.history == child.state.history


def test_before_anything_was_done_it_begins_like_any_session() -> None:
    parent = lived()
    new = fork(parent, 2)
    assert after(new) == ["session.forked"]
    new.claim()
    assert new.owes_model().attempt == 1
    other = fork(parent, 1, task="another task")
    other.prepare()
    assert (other.state.turn, other.state.history) == (1, (UserMessage("another task", 4),))
    instead = fork(parent, 2, task="another task")
    assert instead.end.status is Status.CANCELLED
    instead.prepare()
    assert instead.owes_model().attempt == 1


@pytest.mark.req("TOOL-10", "TOOL-17")
def test_calls_that_change_the_world_are_put_to_a_person_in_the_turn_that_goes_on() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, ToolFinished))
    child.answer(PAY)
    assert child.state.pending == Pending(PendingKind.APPROVAL, ("t1_c2_1",))
    child.approve("pay")
    child.ok("pay")
    child.answer(text="done")
    child.tell("again")
    child.prepare()
    child.answer(PAY)
    assert child.running() == ["t2_c1_1"]


@pytest.mark.req("TOOL-10", "LOOP-13")
def test_they_still_are_when_that_turn_is_stopped_and_goes_on() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, ToolFinished))
    for amount in (6, 7):
        child.pass_s(2_000)
        child.ring("total_timeout")
        child.resume(Limits(total_timeout_s=1_000))
        child.prepare()
        child.answer(call("pay", {"amount": amount}, effect=ONCE))
        assert child.running() == []
        assert child.state.phase is Phase.WAITING
        child.deny("pay")
    child.answer(text="done")
    child.tell("the next")
    child.prepare()
    child.answer(PAY)
    assert child.running() == ["t4_c1_1"]


@pytest.mark.req("TOOL-10")
def test_what_was_done_before_it_is_not_done_again_and_a_given_result_counts_as_done() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, ToolFinished, 1))
    child.answer(PAY)
    assert child.results()[-1].executed is False
    assert child.state.pending is None
    given = fork(parent, seq_of(parent, ToolFinished), result=("t1_c1_2", "as if paid"))
    given.answer(PAY)
    assert str(given.results()[-1].content).startswith("as if paid")


def test_a_fork_of_a_fork_holds_back_in_its_own_turn() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, TurnEnded), task="other")
    child.prepare()
    child.answer(call("echo"))
    child.ok("echo")
    grandchild = fork(child, len(child.events), task="third")
    assert grandchild.state.session_id == "ses_1ff"
    grandchild.prepare()
    assert grandchild.state.turn == grandchild.state.forked_turn == 3
    grandchild.answer(PAY)
    assert grandchild.state.pending == Pending(PendingKind.APPROVAL, ("t3_c1_1",))
    marks = [e.body for e in grandchild.events if isinstance(e.body, SessionForked)]
    assert [(m.parent, m.turn) for m in marks] == [("ses_1", 2), ("ses_1f", 3)]


def test_messages_that_were_not_taken_up_stay_behind() -> None:
    parent = Machine()
    parent.tell("later", Policy.ENQUEUE)
    parent.tell("in euros", Policy.STEER)
    parent.answer(call("echo"))
    child = fork(parent, len(parent.events))
    assert child.state.queue == ()
    assert child.state.history[-1] != UserMessage("in euros", 4)


def test_a_session_that_was_closed_or_stopped_before_it_began_can_be_forked_all_the_same() -> None:
    parent = lived()
    parent.close()
    child = fork(parent, len(parent.events), task="on")
    child.prepare()
    assert child.owes_model().attempt == 1
    cancelled = lived()
    cancelled.tell("never mind")
    cancelled.cancel()
    child = fork(cancelled, len(cancelled.events), task="on")
    child.prepare()
    assert child.owes_model().attempt == 1


def test_after_a_guard_has_decided_it_decides_again() -> None:
    parent = Machine(Limits(max_steps=1))
    parent.answer(call("echo"))
    parent.ok("echo")
    closing = len(parent.events)
    assert parent.state.stopping is StopReason.MAX_STEPS
    child = fork(parent, closing)
    assert shape(child.events).count("guard.tripped") == 1
    assert child.state.stopping is StopReason.MAX_STEPS
    child.answer(text="so far")
    assert child.end.stop_reason is StopReason.MAX_STEPS


@pytest.mark.parametrize("kind", [FaultKind.SECURITY, FaultKind.REFUSED_REQUEST])
def test_a_fault_that_ends_the_turn_is_not_taken(kind: FaultKind) -> None:
    parent = Machine()
    parent.answer(call("echo"))
    parent.fail("echo", kind)
    faulty = seq_of(parent, ToolFinished)
    for at_seq in range(faulty, len(parent.events)):
        child = fork(parent, at_seq)
        assert child.results()[-1].outcome is Outcome.CANCELLED
        assert child.owes_model().attempt == 1
    whole = fork(parent, len(parent.events), task="on")
    fell = [r.outcome for r in whole.results()]
    assert fell == [Outcome.CANCELLED if kind is FaultKind.SECURITY else Outcome.ERROR]


@pytest.mark.parametrize("phase", [Phase.THINK, Phase.REFLECT, Phase.DONE])
def test_elsewhere_there_is_no_fork(phase: Phase) -> None:
    parent = lived()
    state = fold(parent.events[: next(e.seq for e in parent.events if e.phase is phase)])
    assert state is not None
    assert not boundary(state)
    with pytest.raises(IllegalTransitionError, match=f"No fork goes on from event {state.seq}"):
        forked(state, Forking(parent.now_us, "ses_1", state.seq))


def test_a_fork_may_stop_at_once_where_a_guard_says_so() -> None:
    parent = lived()
    child = fork(parent, seq_of(parent, ToolFinished))
    assert child.state.ended is None
    narrow = Machine(Limits(max_steps=1))
    narrow.answer(call("echo"), call("search"))
    narrow.ok("echo", "a fact")
    child = fork(narrow, len(narrow.events))
    assert child.state.stopping is StopReason.MAX_STEPS
    child.answer(text="so far")
    assert child.end.stop_reason is StopReason.MAX_STEPS


def test_no_result_is_given_to_a_call_that_is_not_open() -> None:
    parent = lived()
    assert boundary(parent.state)
    assert not boundary(parent.state, "t1_c1_1")
    given = GivenResult("t1_c1_1", "x", 1, "d")
    asked = Forking(parent.now_us, "ses_1", parent.state.seq, result=given)
    with pytest.raises(IllegalTransitionError):
        forked(parent.state, asked)


def test_another_model_and_prompt_are_named() -> None:
    parent = lived()
    task = QueuedText("on", 4)
    events: tuple[Event, ...] = forked(
        parent.state,
        Forking(0, "ses_1", parent.state.seq, task, model="m1", prompt="default@1"),
    )
    mark = events[0].body
    assert mark == SessionForked("ses_1", parent.state.seq, 3, "m1", "default@1")
    assert all(e.at_us >= parent.state.at_us for e in events)
