"""Calls that a person has to allow: asked for when all else is done, bound, single, expiring."""

import pytest

from app.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallMade,
    Choice,
    Limits,
    Outcome,
    ToolIntended,
)
from app.core.faults import FaultKind
from app.core.ids import approval_id, approval_parts
from app.core.inputs import ApprovalGiven
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.messages import ToolMessage
from app.core.plan import Rest, due_timer, resting
from app.core.state import Pending
from tests.core.machine_kit import ONCE, SECOND, Machine, call, error, shape

PAY = call("pay", {"amount": 5}, effect=ONCE, needs_approval=True)
PAY_7 = call("pay", {"amount": 7}, effect=ONCE, needs_approval=True)


def asked(*calls: CallMade, limits: Limits | None = None) -> Machine:
    session = Machine(limits)
    session.answer(*(calls or (PAY,)))
    return session


def waits_for(session: Machine) -> Pending | None:
    assert session.state.phase is Phase.WAITING
    return session.state.pending


def contents(session: Machine) -> list[str]:
    return [m.content for m in session.state.history if isinstance(m, ToolMessage)]


@pytest.mark.req("TOOL-17")
def test_an_id_says_which_call_of_which_session_it_is_for() -> None:
    assert approval_id("ses_1", "t1_c1_1") == "apr_1_t1_c1_1"
    assert approval_parts("apr_1_t1_c1_1") == ("ses_1", "t1_c1_1")
    for other in ("", "apr_", "apr__t1", "ses_1_t1", "apr_1", "apr_1_"):
        assert approval_parts(other) is None


@pytest.mark.req("TOOL-17")
@pytest.mark.case("C087")
def test_siblings_finish_first_then_the_session_waits_and_only_the_approved_call_is_made() -> None:
    session = asked(call("echo"), PAY)
    assert session.running() == ["t1_c1_1"]
    assert session.state.phase is Phase.ACT
    session.ok("echo")
    (wanted,) = [e.body for e in session.events if isinstance(e.body, ApprovalRequested)]
    assert wanted == ApprovalRequested(
        "apr_1_t1_c1_2", "t1_c1_2", "pay", {"amount": 5}, PAY.digest, 3_601 * SECOND
    )
    assert shape(session.events)[-2:] == ["approval.requested", "ACT→WAITING"]
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_2",))
    assert resting(session.state) == Rest(3_601 * SECOND)
    session.pass_s(600)
    session.claim(epoch=2)
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_2",))
    session.approve("pay")
    assert shape(session.events)[-3:] == ["approval.decided", "WAITING→ACT", "tool.intended"]
    assert session.running() == ["t1_c1_2"]
    session.ok("pay", "paid 5")
    assert session.state.usage.model_calls == 1
    assert [r.call_id for r in session.results()] == ["t1_c1_1", "t1_c1_2"]
    session.answer(text="paid")
    assert session.end.stop_reason is StopReason.FINAL_ANSWER


@pytest.mark.req("TOOL-17", "CTX-7")
def test_a_denied_call_is_closed_with_what_the_person_says_and_the_turn_goes_on() -> None:
    session = asked(call("echo"), PAY)
    session.ok("echo")
    session.deny("pay", "too much")
    denied = session.results()[-1]
    assert (denied.outcome, denied.executed) == (Outcome.DENIED, False)
    assert error(denied).kind is FaultKind.PERMISSION
    assert error(denied).message == (
        "A person denied this call; it was not made. They say: too much"
    )
    assert session.owes_model().attempt == 1
    assert session.state.usage.tool_calls == 1


@pytest.mark.req("TOOL-17")
def test_what_nobody_allows_in_time_lapses_and_the_rest_stands() -> None:
    short = call("pay", {"amount": 7}, effect=ONCE, needs_approval=True, approval_ttl_s=60.0)
    session = asked(PAY, short)
    over = 61 * SECOND
    assert resting(session.state) == Rest(over)
    assert session.ring("approval") == ()
    session.pass_s(60)
    assert due_timer(session.state, over - 1) is None
    assert due_timer(session.state, over) == "approval"
    session.ring("approval")
    assert error(session.results()[-1]).message == (
        "Nobody approved this call in time; it was not made."
    )
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_1",))
    assert resting(session.state) == Rest(3_601 * SECOND)
    assert session.ring("approval") == ()
    session.pass_s(3_600)
    session.claim(epoch=2)
    session.ring("approval")
    assert [r.outcome for r in session.results()] == [Outcome.DENIED, Outcome.DENIED]
    assert session.owes_model().attempt == 1
    decided = [e.body for e in session.events if isinstance(e.body, ApprovalDecided)]
    assert [(d.call_id, d.decision) for d in decided] == [
        ("t1_c1_2", Choice.EXPIRED),
        ("t1_c1_1", Choice.EXPIRED),
    ]


@pytest.mark.req("TOOL-17")
def test_of_three_one_is_allowed_one_denied_and_one_lapses() -> None:
    brief = call("boom", needs_approval=True, approval_ttl_s=10.0)
    session = asked(PAY, PAY_7, brief)
    session.approve("t1_c1_1")
    session.deny("t1_c1_2")
    assert session.running() == ["t1_c1_1"]
    assert session.state.phase is Phase.ACT
    session.pass_s(20)
    assert session.ring("approval") == ()  # nothing lapses while a sibling runs
    session.ok("t1_c1_1", "paid 5")
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_3",))
    session.ring("approval")
    assert session.owes_model().attempt == 1
    assert contents(session)[0] == "paid 5"
    assert [r.outcome for r in session.results()] == [Outcome.DENIED, Outcome.OK, Outcome.DENIED]


@pytest.mark.req("TOOL-17")
def test_a_decision_is_taken_once_and_for_its_own_call_only() -> None:
    session = asked(PAY, PAY_7)
    session.approve("t1_c1_1")
    again = ApprovalGiven(session.now_us, "apr_1_t1_c1_1", Choice.DENY)
    assert session.give(again) == ()
    assert session.running() == ["t1_c1_1"]
    session.ok("t1_c1_1")
    assert session.give(again) == ()
    assert session.give(ApprovalGiven(session.now_us, "apr_2_t1_c1_2", Choice.APPROVE)) == ()
    assert session.give(ApprovalGiven(session.now_us, "apr_1_t9_c1_1", Choice.APPROVE)) == ()
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_2",))


@pytest.mark.req("TOOL-17")
def test_one_is_decided_while_the_other_runs() -> None:
    session = asked(PAY, PAY_7)
    session.approve("t1_c1_1")
    session.approve("t1_c1_2")
    assert session.running() == ["t1_c1_1", "t1_c1_2"]
    session.ok("t1_c1_2")
    session.ok("t1_c1_1")
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-17")
def test_changed_arguments_are_what_is_made_and_the_model_is_told() -> None:
    session = asked()
    session.approve("pay", {"amount": 3})
    made = session.events[-1].body
    assert isinstance(made, ToolIntended)
    assert made.arguments == {"amount": 3}
    session.ok("pay", "paid 3")
    assert contents(session) == ["paid 3\n\n[A person changed the arguments.]"]
    told = session.state.history[-1]
    assert told.tokens == 8 + 6
    session.answer(call("pay", {"amount": 3}, effect=ONCE, needs_approval=True))
    assert session.results()[-1].executed is False
    session.answer(PAY)
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c3_1",))


@pytest.mark.req("TOOL-17", "TOOL-10")
def test_a_call_changed_to_one_made_in_an_earlier_step_gets_that_result() -> None:
    session = asked()
    session.approve("pay")
    session.ok("pay", "paid 5")
    session.answer(PAY_7)
    session.approve("pay", {"amount": 5})
    repeated = session.results()[-1]
    assert (repeated.outcome, repeated.executed) == (Outcome.OK, False)
    assert str(repeated.content).startswith("paid 5")
    assert session.state.usage.tool_calls == 1
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-17", "TOOL-10")
@pytest.mark.parametrize("first", ["t1_c1_1", "t1_c1_2"])
def test_a_call_changed_to_what_a_sibling_has_made_is_not_made_again(first: str) -> None:
    second = "t1_c1_2" if first == "t1_c1_1" else "t1_c1_1"
    session = asked(PAY, PAY_7)
    amount = session.open(first).call.arguments
    session.approve(first)
    session.approve(second, amount)
    assert session.running() == [first]
    session.ok(first, "paid")
    repeated = session.results()[-1]
    assert (repeated.call_id, repeated.outcome, repeated.executed) == (second, Outcome.OK, False)
    assert session.state.usage.tool_calls == 1


@pytest.mark.req("TOOL-17", "TOOL-10")
def test_a_question_that_a_changed_sibling_answers_is_moot() -> None:
    session = asked(PAY, PAY_7)
    session.approve("t1_c1_2", {"amount": 5})
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_1",))
    session.deny("t1_c1_1")
    assert session.running() == ["t1_c1_2"]  # it was allowed in so many words
    session.ok("t1_c1_2")
    assert [r.outcome for r in session.results()] == [Outcome.DENIED, Outcome.OK]


@pytest.mark.req("TOOL-17")
def test_a_change_into_a_repetition_withholds_the_call_and_cuts_no_sibling() -> None:
    """With `max_repeat` 1 the same asked by the model would end the turn."""
    session = asked(limits=Limits(max_repeat=1))
    session.approve("pay")
    session.ok("pay")
    session.answer(PAY_7, call("pay", {"amount": 9}, effect=ONCE, needs_approval=True))
    session.approve("t1_c2_1")
    session.approve("t1_c2_2", {"amount": 5})
    withheld = session.results()[-1]
    assert (withheld.call_id, withheld.executed) == ("t1_c2_2", False)
    assert session.running() == ["t1_c2_1"]
    session.ok("t1_c2_1")
    assert session.owes_model().attempt == 1
    assert session.state.ended is None


@pytest.mark.req("TOOL-17")
@pytest.mark.parametrize("decision", [Choice.APPROVE, Choice.DENY])
def test_of_equal_calls_one_is_asked_about_and_the_answer_holds_for_both(decision: Choice) -> None:
    session = asked(PAY, PAY)
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_1",))
    session.approve("t1_c1_1", decision=decision)
    if decision is Choice.APPROVE:
        assert session.running() == ["t1_c1_1"]
        session.ok("t1_c1_1")
    wanted = Outcome.OK if decision is Choice.APPROVE else Outcome.DENIED
    assert [r.outcome for r in session.results()] == [wanted, wanted]
    assert [r.executed for r in session.results()][1] is False
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-17")
def test_when_the_first_of_equal_calls_is_changed_the_other_is_asked_about() -> None:
    session = asked(PAY, PAY)
    session.approve("t1_c1_1", {"amount": 4})
    session.ok("t1_c1_1")
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c1_2",))


@pytest.mark.req("TOOL-17", "LOOP-12")
def test_a_call_waits_for_the_approval_of_the_one_it_depends_on() -> None:
    session = asked(PAY, call("echo", depends_on=("pay",)), call("search", serial_group="g"))
    assert session.running() == ["t1_c1_3"]
    session.ok("search")
    session.approve("pay")
    assert session.running() == ["t1_c1_1"]
    session.ok("pay")
    assert session.running() == ["t1_c1_2"]


@pytest.mark.req("TOOL-17", "LOOP-12")
def test_a_circle_with_an_equal_call_under_approval_does_not_stick() -> None:
    own = call("pay", {"amount": 5}, effect=ONCE, needs_approval=True, depends_on=("pay",))
    session = asked(own, own)
    session.approve("t1_c1_1")
    assert session.running() == ["t1_c1_1"]
    session.ok("t1_c1_1")
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-17", "TOOL-10")
def test_an_approved_call_whose_worker_is_lost_is_not_made_again() -> None:
    session = asked(PAY, PAY_7)
    session.approve("t1_c1_1")
    session.claim(epoch=2)
    assert session.running() == []
    session.pass_s(40)
    session.ring("verification")
    assert waits_for(session) == Pending(PendingKind.VERIFICATION, ("t1_c1_1",))
    assert resting(session.state) == Rest(3_601 * SECOND)
    session.approve("t1_c1_2")
    assert session.running() == ["t1_c1_2"]
    session.ok("t1_c1_2")
    assert waits_for(session) == Pending(PendingKind.VERIFICATION, ("t1_c1_1",))
    session.verify("t1_c1_1", happened=False)
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-10", "TOOL-17")
def test_after_an_unknown_outcome_a_person_may_have_it_made_again() -> None:
    session = Machine()
    pay = call("pay", {"amount": 5}, effect=ONCE)
    session.answer(pay)
    session.fail("pay", FaultKind.TIMEOUT)
    session.answer(pay)
    assert waits_for(session) == Pending(PendingKind.APPROVAL, ("t1_c2_1",))
    session.approve("pay")
    session.ok("pay", "paid 5")
    session.answer(pay)
    assert session.results()[-1].executed is False
    assert session.state.usage.tool_calls == 2


@pytest.mark.req("TOOL-17", "STATE-10", "API-8")
@pytest.mark.case("C049")
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_ending_a_session_that_waits_closes_what_it_asked_for(how: str) -> None:
    session = asked(call("echo"), PAY)
    session.ok("echo")
    session.cancel() if how == "cancel" else session.close()
    assert session.end.status is Status.CANCELLED
    assert session.results()[-1].outcome is Outcome.CANCELLED
    late = ApprovalGiven(session.now_us, "apr_1_t1_c1_2", Choice.APPROVE)
    assert session.give(late) == ()
    assert resting(session.state) == Rest(None)
    if how == "cancel":
        session.tell("go on")
        session.prepare()
        assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-17", "LOOP-9")
def test_waiting_for_a_person_costs_no_time_but_what_runs_beside_it_does() -> None:
    session = asked(PAY, PAY_7)
    session.pass_s(1_000)
    assert session.ring("total_timeout") == ()
    session.approve("t1_c1_1")
    session.pass_s(90)
    session.ring("total_timeout")
    assert session.end.stop_reason is StopReason.TOTAL_TIMEOUT
    assert [r.outcome for r in session.results()] == [Outcome.UNKNOWN, Outcome.CANCELLED]
