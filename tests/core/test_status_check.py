"""A call that may have happened is looked up at its tool, where that can be asked (TOOL-10)."""

import pytest

from app.core.events import Outcome, ToolChecked, VerificationDecided
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import PendingKind, Phase, Status
from app.core.plan import Rest, in_doubt, owed, resting
from app.core.state import Pending
from tests.core.machine_kit import ONCE, SECOND, Machine, call, error

PAY = call("pay", {"amount": 5}, effect=ONCE, checkable=True)

pytestmark = pytest.mark.req("TOOL-10")


def in_live_doubt() -> Machine:
    session = Machine()
    session.answer(PAY)
    session.fail("pay", FaultKind.TIMEOUT)
    return session


def lost() -> Machine:
    """Return a session whose owner was lost, at the time when nobody can be at the call."""
    session = Machine()
    session.answer(PAY)
    session.claim(epoch=2)
    session.pass_s(30)
    session.claim(epoch=3)
    session.ring("verification")
    return session


def test_a_failure_after_sending_is_looked_up_a_second_later() -> None:
    session = in_live_doubt()
    (first,) = [e.body for e in session.events if isinstance(e.body, ToolChecked)]
    assert (first.attempt, first.retry_at_us) == (0, 2 * SECOND)
    assert session.running() == []
    effect = session.owes_check("pay")
    assert (effect.attempt, effect.not_before_us) == (1, 2 * SECOND)
    assert session.state.phase is Phase.ACT
    assert session.state.pending is None


@pytest.mark.parametrize(
    ("output", "content"), [("receipt 1", "receipt 1"), (None, "It happened; no output is known.")]
)
def test_it_happened(output: str | None, content: str) -> None:
    session = in_live_doubt()
    session.pass_s(1)
    decided, *_ = session.check("pay", happened=True, output=output)
    assert decided == VerificationDecided(
        "t1_c1_1", happened=True, output=output, by="status_check"
    )
    assert session.results()[-1].outcome is Outcome.OK
    assert getattr(session.state.history[-1], "content", None) == content
    session.answer(PAY)
    assert session.results()[-1].executed is False
    assert session.state.usage.tool_calls == 1


def test_that_it_did_not_happen_is_believed_only_after_its_own_timeout() -> None:
    session = in_live_doubt()
    session.pass_s(1)
    (early,) = session.check("pay", happened=False)
    assert isinstance(early, ToolChecked)
    assert early.retry_at_us == SECOND + 15 * SECOND
    assert in_doubt(session.state)
    session.pass_s(14)
    assert session.owes_check("pay").not_before_us == session.now_us
    decided, *_ = session.check("pay", happened=False, output="not a result")
    assert decided == VerificationDecided("t1_c1_1", happened=False, by="status_check")
    assert "did not happen" in error(session.results()[-1]).message
    session.answer(PAY)
    assert session.running() == ["t1_c2_1"]


def test_a_tool_that_does_not_know_is_asked_three_times_then_the_model_is_told() -> None:
    session = in_live_doubt()
    away = Fault.of(FaultKind.UNAVAILABLE, "503")
    waits = []
    for fault in (away, None):
        asked_at = session.now_us
        (checked,) = session.check("pay", happened=None, fault=fault)
        assert isinstance(checked, ToolChecked)
        assert checked.retry_at_us is not None
        waits.append(checked.retry_at_us - asked_at)
        session.now_us = checked.retry_at_us
    assert waits == [250_000, 500_000]
    session.check("pay", happened=None, fault=away)
    (result,) = session.results()
    assert result.outcome is Outcome.UNKNOWN
    assert "503" in error(result).message
    session.answer(PAY)
    assert session.state.pending == Pending(PendingKind.APPROVAL, ("t1_c2_1",))


def test_a_call_of_a_lost_worker_is_looked_up_only_when_nobody_can_be_at_it() -> None:
    session = Machine()
    session.answer(PAY)
    session.claim(epoch=2)
    assert owed(session.state) == ()
    assert resting(session.state) == Rest(SECOND + 30 * SECOND)
    session.pass_s(30)
    session.ring("verification")
    assert session.owes_check("pay").not_before_us == session.now_us
    session.check("pay", happened=False)
    assert session.owes_model().attempt == 1


def test_of_a_lost_call_a_person_is_asked_when_the_tool_cannot_say() -> None:
    session = lost()
    for _ in range(3):
        session.check("pay", happened=None)
    assert session.state.phase is Phase.WAITING
    assert session.state.pending == Pending(PendingKind.VERIFICATION, ("t1_c1_1",))
    assert resting(session.state) == Rest(None)
    session.verify("t1_c1_1", happened=True, output="receipt")
    assert session.results()[-1].outcome is Outcome.OK


def test_a_crash_while_it_is_looked_up_goes_on_where_it_was() -> None:
    session = lost()
    session.check("pay", happened=None)
    before = owed(session.state)
    session.claim(epoch=4)
    assert owed(session.state) == before
    assert session.owes_check("pay").attempt == 2


def test_a_person_may_say_it_first_and_a_late_answer_of_the_tool_is_nothing() -> None:
    session = lost()
    effect = session.owes_check("pay")
    session.verify("t1_c1_1", happened=True)
    assert session.owes_model().attempt == 1
    assert effect.key not in {e.key for e in owed(session.state)}


def test_one_that_cannot_be_asked_waits_for_a_person_after_the_other_is_known() -> None:
    session = Machine()
    session.answer(PAY, call("pay", {"amount": 7}, effect=ONCE), call("echo", depends_on=("pay",)))
    session.claim(epoch=2)
    session.pass_s(30)
    session.ring("verification")
    session.check("t1_c1_1", happened=True)
    assert session.state.pending == Pending(PendingKind.VERIFICATION, ("t1_c1_2",))
    session.verify("t1_c1_2", happened=False)
    assert session.running() == ["t1_c1_3"]


def test_a_live_doubt_and_a_lost_call_are_settled_each_in_its_own_way() -> None:
    session = Machine()
    session.answer(PAY, call("pay", {"amount": 7}, effect=ONCE))
    session.fail("t1_c1_1", FaultKind.TIMEOUT)
    session.claim(epoch=2)
    for _ in range(3):
        session.check("t1_c1_1", happened=None)
    assert session.results()[-1].outcome is Outcome.UNKNOWN
    assert resting(session.state) == Rest(SECOND + 30 * SECOND)
    session.pass_s(30)
    session.ring("verification")
    assert session.state.pending == Pending(PendingKind.VERIFICATION, ("t1_c1_2",))


def test_its_look_ups_are_not_given_again_when_another_call_is_lost_later() -> None:
    session = Machine()
    then = call("pay", {"amount": 9}, effect=ONCE, depends_on=("locate",))
    session.answer(PAY, call("locate", client=True), then)
    session.claim(epoch=2)
    session.pass_s(30)
    session.ring("verification")
    for _ in range(3):
        session.check("t1_c1_1", happened=None)
    session.caller("locate")
    assert session.running() == ["t1_c1_3"]
    session.claim(epoch=3)
    session.pass_s(30)
    session.ring("verification")
    assert owed(session.state) == ()
    assert session.state.pending == Pending(PendingKind.VERIFICATION, ("t1_c1_1", "t1_c1_3"))


def test_cancelling_meanwhile_ends_with_an_unknown_outcome() -> None:
    session = in_live_doubt()
    session.cancel()
    assert session.end.status is Status.CANCELLED
    assert session.results()[-1].outcome is Outcome.UNKNOWN


def test_what_never_left_is_tried_again_and_not_looked_up() -> None:
    session = Machine()
    session.answer(PAY)
    session.fail("pay", FaultKind.UNAVAILABLE, sent=False)
    assert session.owes_tool("pay").attempt == 2
