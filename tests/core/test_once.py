"""A call that changes the world happens once: repeated, crashed, verified, cancelled."""

import pytest

from app.core.events import (
    NO_USAGE,
    CallMade,
    Event,
    Outcome,
    Result,
    SessionInterrupted,
    TimerFired,
    TurnEnded,
    VerificationAsked,
)
from app.core.evolve import evolve
from app.core.faults import FaultKind
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.messages import sequence_fault
from app.core.plan import Rest, due_timer, in_doubt, owed, resting
from app.core.state import Pending
from tests.core.machine_kit import ONCE, SECOND, Machine, call, error

PAY = call("pay", {"amount": 5}, effect=ONCE)


def in_flight(*more: CallMade) -> Machine:
    session = Machine()
    session.answer(PAY, *more)
    return session


def crashed(*more: CallMade) -> Machine:
    """Return a session whose owner was lost while it paid."""
    session = in_flight(*more)
    session.pass_s(3)
    session.claim(epoch=2)
    return session


def asked() -> Machine:
    session = crashed()
    session.pass_s(30)
    session.claim(epoch=3)
    session.ring("verification")
    return session


@pytest.mark.req("TOOL-10")
def test_the_same_action_later_in_the_turn_gets_the_first_result_with_a_note() -> None:
    session = Machine()
    session.step_ok(PAY, output="paid 5")
    session.step_ok(call("echo"))
    session.answer(call("pay", {"amount": 5.0}, effect=ONCE))
    again = session.results()[-1]
    assert (again.outcome, again.executed) == (Outcome.OK, False)
    assert again.content is not None
    assert again.content.startswith("paid 5\n\n[You already have this result")
    assert again.tokens > 8
    session.step_ok(call("pay", {"amount": 6}, effect=ONCE))
    assert session.state.usage.tool_calls == 3


@pytest.mark.req("TOOL-10")
def test_the_next_turn_may_pay_again() -> None:
    session = Machine()
    session.step_ok(PAY)
    session.answer(text="paid")
    session.tell("and again")
    session.prepare()
    session.answer(PAY)
    assert session.running() == ["t2_c1_1"]


@pytest.mark.req("TOOL-10")
def test_the_next_turn_pays_again_what_may_have_been_paid_only_when_a_person_agrees() -> None:
    session = in_flight()
    session.fail("pay", FaultKind.TIMEOUT)
    session.answer(text="it may be paid")
    session.tell("and again")
    session.prepare()
    session.answer(PAY)
    assert session.running() == []
    assert session.state.pending is not None
    assert session.state.pending.kind is PendingKind.APPROVAL


@pytest.mark.req("TOOL-10", "STATE-4")
def test_a_crash_in_flight_leaves_doubt_that_no_worker_resolves() -> None:
    session = crashed(call("echo"))
    assert isinstance(session.events[-1].body, SessionInterrupted)
    assert session.running() == ["t1_c1_2"]
    session.ok("echo")
    assert owed(session.state) == ()
    doubt = session.state.calls[0].doubt
    assert doubt is not None
    since = doubt.since_us
    assert since == 4 * SECOND
    assert resting(session.state) == Rest(since + 30 * SECOND)
    assert due_timer(session.state, since + 30 * SECOND - 1) is None
    session.claim(epoch=3)
    assert resting(session.state) == Rest(since + 30 * SECOND)


@pytest.mark.req("TOOL-10")
@pytest.mark.case("C087")
def test_what_was_done_before_the_wait_is_not_done_again_after_it() -> None:
    session = crashed(call("echo"))
    session.ok("echo")
    session.pass_s(30)
    session.claim(epoch=3)
    session.ring("verification")
    session.claim(epoch=4)
    session.verify("t1_c1_1", happened=True)
    assert session.state.usage.tool_calls == 2
    assert session.state.usage.model_calls == 1
    assert [r.call_id for r in session.results()] == ["t1_c1_2", "t1_c1_1"]
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-10")
def test_a_person_is_asked_only_after_lease_and_timeout() -> None:
    session = crashed()
    assert session.ring("verification") == ()
    session.pass_s(30)
    fired, _, wanted = session.ring("verification")
    assert isinstance(fired, TimerFired)
    assert wanted == VerificationAsked(("t1_c1_1",))
    assert session.state.phase is Phase.WAITING
    assert session.state.pending is not None
    assert session.state.pending.kind is PendingKind.VERIFICATION
    assert resting(session.state) == Rest(None)


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize(
    ("output", "content"), [("receipt 1", "receipt 1"), (None, "It happened; no output is known.")]
)
def test_it_happened(output: str | None, content: str) -> None:
    session = asked()
    session.verify("t1_c1_1", happened=True, output=output)
    assert session.results()[-1].outcome is Outcome.OK
    assert session.state.pending is None
    assert getattr(session.state.history[-1], "content", None) == content
    session.answer(PAY)
    assert session.results()[-1].executed is False


@pytest.mark.req("TOOL-10")
def test_it_did_not_happen_and_may_be_called_again() -> None:
    session = asked()
    session.verify("t1_c1_1", happened=False)
    assert "did not happen" in error(session.results()[-1]).message
    assert session.verify("t1_c1_1", happened=True) == ()
    session.answer(PAY)
    assert session.running() == ["t1_c2_1"]


@pytest.mark.req("TOOL-10")
def test_two_in_doubt_wait_until_both_are_decided() -> None:
    session = crashed(call("pay", {"amount": 7}, effect=ONCE), call("echo", depends_on=("pay",)))
    session.pass_s(30)
    session.claim(epoch=3)
    session.ring("verification")
    session.verify("t1_c1_2", happened=True)
    assert session.state.phase is Phase.WAITING
    assert session.state.pending is not None
    assert session.state.pending.calls == ("t1_c1_1",)
    session.verify("t1_c1_1", happened=False)
    assert session.running() == ["t1_c1_3"]


@pytest.mark.req("TOOL-10")
def test_a_decision_may_come_before_it_is_asked_for() -> None:
    session = crashed()
    session.verify("t1_c1_1", happened=True)
    assert session.owes_model().attempt == 1


@pytest.mark.req("STATE-10", "API-8")
@pytest.mark.parametrize("waiting", [False, True])
def test_cancelling_in_doubt_ends_with_an_unknown_outcome(*, waiting: bool) -> None:
    session = asked() if waiting else crashed()
    session.cancel()
    assert session.end.status is Status.CANCELLED
    assert session.results()[-1].outcome is Outcome.UNKNOWN
    assert in_doubt(session.state) == ()


@pytest.mark.req("LOOP-9")
def test_waiting_for_a_person_costs_no_time() -> None:
    session = asked()
    used = session.state.active_us
    session.pass_s(3_600)
    assert session.ring("total_timeout") == ()
    session.claim(epoch=4)
    session.verify("t1_c1_1", happened=True)
    assert session.state.active_us == used
    assert session.state.ended is None


@pytest.mark.req("STATE-10")
@pytest.mark.case("C042")
def test_a_cancelled_call_is_closed_once_and_the_next_turn_is_sendable() -> None:
    session = Machine()
    session.answer(call("echo"), call("search"))
    session.ok("echo", "the fact")
    session.cancel()
    (_, cut) = session.results()
    assert cut.outcome is Outcome.CANCELLED
    session.tell("hello")
    session.prepare()
    assert sequence_fault(session.state.history) is None
    assert session.owes_model().attempt == 1


@pytest.mark.req("STATE-10", "TOOL-10")
def test_an_end_that_was_not_folded_still_closes_calls_and_remembers_the_doubt() -> None:
    session = in_flight(call("echo"), call("search", depends_on=("echo",)))
    body = TurnEnded(Status.FAILED, StopReason.UNRECOVERABLE_ERROR, Result(), NO_USAGE)
    seq = session.state.seq + 1
    session.state = evolve(session.state, Event(seq, 1, 1, Phase.DONE, session.now_us, body))
    assert sequence_fault(session.state.history) is None
    assert session.state.calls == ()
    session.resume()
    session.prepare()
    session.answer(PAY, call("echo"))
    assert session.running() == ["t2_c2_2"]
    session.ok("t2_c2_2")
    assert session.state.pending == Pending(PendingKind.APPROVAL, ("t2_c2_1",))


def test_an_idempotent_call_in_flight_is_owed_again_after_a_crash() -> None:
    session = Machine()
    session.answer(call("echo"))
    before = owed(session.state)
    session.claim(epoch=2)
    assert owed(session.state) == before
    assert in_doubt(session.state) == ()
