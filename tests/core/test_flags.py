"""What a guard stopped as it was called is flagged; the model is told, and the turn goes on."""

import pytest

from app.core.events import Outcome, SecurityFlagged
from app.core.faults import Fault, FaultKind
from app.core.inputs import ToolFaulted
from app.core.replay import replay
from tests.core.machine_kit import ONCE, Machine, call, shape

INSIDE = Fault.of(FaultKind.PERMISSION, "it is at an address that tools may not reach.", sent=False)


def fails(session: Machine, which: str, fault: Fault, *, flagged: str | None = None) -> None:
    effect = session.owes_tool(which)
    call_id = effect.call.call_id
    session.give(
        ToolFaulted(session.now_us, effect.key, call_id, fault, 20, 2.0, 0.0, flagged=flagged)
    )


@pytest.mark.req("SAFE-6", "TOOL-16")
def test_a_call_that_the_egress_guard_stops_is_flagged_behind_its_end() -> None:
    session = Machine()
    session.answer(call("echo"))
    fails(session, "echo", INSIDE, flagged="egress")
    assert "tool.finished security.flagged" in " ".join(shape(session.events))
    (flag,) = [e.body for e in session.events if isinstance(e.body, SecurityFlagged)]
    assert flag == SecurityFlagged("egress", INSIDE.message, "t1_c1_1", "echo")
    (result,) = session.results()
    assert (result.outcome, result.error) == (Outcome.ERROR, INSIDE)
    assert session.owes_model().attempt == 1
    assert replay(session.events).divergence is None


@pytest.mark.req("SAFE-6", "TOOL-10")
def test_so_is_a_once_call_which_was_redirected_after_it_was_sent() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    fails(session, "pay", Fault.of(FaultKind.PERMISSION, "inside"), flagged="egress")
    assert shape(session.events).count("security.flagged") == 1
    assert session.results()[0].outcome is Outcome.ERROR


def test_an_ordinary_failure_is_not() -> None:
    session = Machine()
    session.answer(call("echo"))
    fails(session, "echo", Fault.of(FaultKind.PERMISSION, "HTTP 403"))
    assert "security.flagged" not in shape(session.events)
