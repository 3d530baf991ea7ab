"""Calls which the caller carries out: the session waits, and takes what comes."""

import pytest

from app.core.events import CallMade, Outcome
from app.core.faults import FaultKind
from app.core.inputs import ClientAnswered
from app.core.lifecycle import PendingKind, Phase, StopReason
from app.core.messages import ToolMessage
from app.core.plan import Rest, owed, resting
from app.core.state import Pending
from tests.core.machine_kit import ONCE, Machine, call, error, shape

LOCATE = call("locate", client=True)
SIGN = call("sign", {"doc": 1}, effect=ONCE, client=True, needs_approval=True)


def asked(*calls: CallMade) -> Machine:
    session = Machine()
    session.answer(*(calls or (LOCATE,)))
    return session


@pytest.mark.req("TOOL-10")
def test_the_intent_is_written_and_the_session_waits_for_the_result() -> None:
    session = asked()
    assert shape(session.events)[-2:] == ["tool.intended", "ACT→WAITING"]
    assert owed(session.state) == ()
    assert session.state.pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_1",))
    assert resting(session.state) == Rest(None)
    session.caller("locate", {"city": "Bern"})
    (result,) = session.results()
    assert (result.outcome, result.output, result.executed) == (
        Outcome.OK,
        {"city": "Bern"},
        True,
    )
    assert resting(session.state) is None
    assert session.owes_model().attempt == 1
    assert session.state.usage.tool_calls == 1


def test_a_failure_there_is_an_error_for_the_model() -> None:
    session = asked()
    session.caller("locate", error="no signal")
    (result,) = session.results()
    assert result.outcome is Outcome.ERROR
    assert (error(result).kind, error(result).message) == (FaultKind.INTERNAL, "no signal")
    told = session.state.history[-1]
    assert isinstance(told, ToolMessage)
    assert "no signal" in told.content


def test_what_runs_here_goes_on_meanwhile_and_a_result_may_come_before_the_wait() -> None:
    session = asked(LOCATE, call("echo"))
    assert session.state.phase is Phase.ACT
    session.caller("locate")
    assert session.running() == ["t1_c1_2"]
    session.ok("echo")
    assert session.owes_model().attempt == 1


def test_two_of_them_come_one_by_one_and_only_once() -> None:
    session = asked(LOCATE, call("contacts", client=True), call("echo", depends_on=("locate",)))
    session.caller("locate")
    assert session.running() == ["t1_c1_3"]
    assert session.give(ClientAnswered(session.now_us, "t1_c1_1", "again", None, 3, "d")) == ()
    session.ok("echo")
    assert session.state.pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_2",))
    session.caller("contacts")
    assert session.owes_model().attempt == 1
    assert len(session.results()) == 3


@pytest.mark.req("TOOL-10", "STATE-4")
def test_a_crash_does_not_put_it_in_doubt() -> None:
    session = asked(call("sign", {"doc": 1}, effect=ONCE, client=True))
    session.claim(epoch=2)
    assert session.state.pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_1",))
    session.caller("sign")
    assert session.results()[-1].outcome is Outcome.OK


@pytest.mark.req("TOOL-17")
def test_one_that_needs_approval_is_not_the_callers_before_it_is_given() -> None:
    session = asked(SIGN, LOCATE)
    assert session.state.pending == Pending(PendingKind.APPROVAL, ("t1_c1_1",))
    assert session.give(ClientAnswered(session.now_us, "t1_c1_1", "signed", None, 3, "d")) == ()
    session.approve("sign", {"doc": 2})
    assert shape(session.events)[-4:] == [
        "approval.decided",
        "WAITING→ACT",
        "tool.intended",
        "ACT→WAITING",
    ]
    assert session.state.pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_1", "t1_c1_2"))
    session.caller("locate")
    session.caller("sign")
    assert session.owes_model().attempt == 1


@pytest.mark.req("TOOL-10", "TOOL-17", "LOOP-12")
def test_twins_an_approval_the_caller_and_an_order_in_one_step() -> None:
    session = asked(
        SIGN,
        SIGN,
        call("pay", {"amount": 5}, effect=ONCE, needs_approval=True, serial_group="g"),
        call("pay", {"amount": 6}, effect=ONCE, serial_group="g"),
        call("echo", depends_on=("sign", "pay")),
    )
    assert session.state.pending == Pending(PendingKind.APPROVAL, ("t1_c1_1", "t1_c1_3"))
    session.approve("t1_c1_1")
    session.deny("t1_c1_3", "no")
    assert session.running() == ["t1_c1_4"]
    session.caller("t1_c1_1", "signed")
    assert session.results()[-1].call_id == "t1_c1_2"
    session.ok("t1_c1_4")
    assert session.running() == ["t1_c1_5"]
    session.ok("echo")
    assert session.owes_model().attempt == 1
    by_call = {r.call_id: (r.outcome, r.executed) for r in session.results()}
    assert by_call == {
        "t1_c1_1": (Outcome.OK, True),
        "t1_c1_2": (Outcome.OK, False),
        "t1_c1_3": (Outcome.DENIED, False),
        "t1_c1_4": (Outcome.OK, True),
        "t1_c1_5": (Outcome.OK, True),
    }


@pytest.mark.req("STATE-10", "API-8")
@pytest.mark.parametrize("effect", [ONCE, None])
def test_cancelling_closes_it_and_what_comes_later_is_not_taken(effect: object) -> None:
    session = asked(call("sign", effect=ONCE, client=True) if effect else LOCATE)
    session.cancel()
    (cut,) = session.results()
    assert cut.outcome is (Outcome.UNKNOWN if effect else Outcome.CANCELLED)
    assert session.give(ClientAnswered(session.now_us, "t1_c1_1", "late", None, 3, "d")) == ()
    assert session.end.stop_reason is StopReason.CANCELLED
