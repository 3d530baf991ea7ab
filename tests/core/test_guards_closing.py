"""How a guard ends a turn: the closing call, the digest, and which guard comes first."""

import pytest

from app.core import guards
from app.core.events import (
    Finish,
    GuardTripped,
    Limits,
    ModelRef,
    ModelRequested,
    Policy,
    Purpose,
    Usage,
)
from app.core.faults import Fault, FaultKind
from app.core.inputs import Told
from app.core.lifecycle import DIGEST_ONLY, Status, StopReason
from tests.core.machine_kit import ONCE, SECOND, Machine, call

PRICED = ModelRef("m", price_input=10.0, price_output=100.0)


def requests(session: Machine) -> list[Purpose]:
    return [e.body.purpose for e in session.events if isinstance(e.body, ModelRequested)]


@pytest.mark.req("CTX-3", "API-9")
def test_a_window_that_is_full_closes_without_the_tools() -> None:
    session = Machine(model=ModelRef("m", context_window=230))
    session.answer(call("echo"), usage=Usage(150, 40, model_calls=1))
    session.ok("echo", "the fact")
    assert requests(session) == [Purpose.STEP, Purpose.CLOSING]
    session.answer(text="that much")
    assert session.end.stop_reason is StopReason.CONTEXT_OVERFLOW


@pytest.mark.req("API-9")
def test_a_first_request_that_fits_only_without_tools_is_a_closing_call() -> None:
    session = Machine(model=ModelRef("m", context_window=176))
    assert requests(session) == [Purpose.CLOSING]
    session.answer(text="without tools: this")
    assert session.end.result.text == "without tools: this"
    assert session.end.stop_reason is StopReason.CONTEXT_OVERFLOW


@pytest.mark.req("LOOP-9")
def test_time_without_an_owner_does_not_count() -> None:
    session = Machine()
    session.pass_s(10)
    session.answer(call("echo"))
    session.pass_s(300)
    session.claim(epoch=2)
    session.pass_s(5)
    session.ok("echo")
    assert session.state.active_us == 15 * SECOND
    assert session.ring("total_timeout") == ()


def test_time_never_runs_backwards() -> None:
    session = Machine()
    at_us = session.state.at_us
    session.now_us -= 5 * SECOND
    session.give(Told(session.now_us, "from a clock that is behind", 4, Policy.ENQUEUE))
    assert session.state.at_us == at_us


@pytest.mark.case("C154")
def test_a_window_that_never_fits_ends_at_once() -> None:
    tiny = Machine(model=ModelRef("m", context_window=100))
    assert requests(tiny) == []
    assert tiny.end.stop_reason is StopReason.CONTEXT_OVERFLOW
    refused = Machine()
    refused.model_fails(Fault.of(FaultKind.CONTEXT_TOO_LONG, "maximum context length is 8192"))
    assert refused.end.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert requests(refused) == [Purpose.STEP]


@pytest.mark.req("API-9")
@pytest.mark.parametrize("how", ["fails", "silent", "finish"])
def test_the_closing_call_is_asked_once_and_its_failure_gives_the_digest(how: str) -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"), output="the fact")
    if how == "fails":
        session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "down"))
    elif how == "silent":
        session.answer(text=" ")
    else:
        session.answer(finish=Finish("it is the fact", complete=True, confidence=0.7))
        assert session.end.result.confidence == 0.7
    assert session.end.stop_reason is StopReason.MAX_STEPS
    assert session.end.status is Status.STOPPED
    assert "the fact" in session.end.result.text
    assert session.end.result.complete is False


@pytest.mark.req("API-9", "LOOP-10")
def test_the_reasons_without_a_closing_call() -> None:
    by_spec = {StopReason.TOTAL_TIMEOUT, StopReason.MAX_COST, StopReason.SECURITY}
    not_by_a_guard = {
        StopReason.CANCELLED,
        StopReason.UNRECOVERABLE_ERROR,
        StopReason.MODEL_UNAVAILABLE,
        StopReason.OUTPUT_INVALID,
    }
    assert by_spec | not_by_a_guard == DIGEST_ONLY


@pytest.mark.req("LOOP-16")
def test_precedence_withdrawal_is_told_before_errors_stop_and_errors_before_loops() -> None:
    session = Machine(Limits(max_consecutive_errors=2, loop_threshold=2, max_steps=2))
    for n in range(2):
        session.answer(call("boom", {"n": n}))
        session.fail("boom")
    tripped = [e.body.guard for e in session.events if isinstance(e.body, GuardTripped)]
    assert tripped == ["tool_withdrawn", "consecutive_errors"]
    limits = Limits(max_steps=1)
    assert guards.stop_after_step(limits, step=1, errors_running=0, loop="a loop") == (
        StopReason.LOOP_DETECTED,
        "a loop",
    )


@pytest.mark.req("LOOP-16", "TOOL-7", "TOOL-9")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultKind.SECURITY, StopReason.SECURITY),
        (FaultKind.REFUSED_REQUEST, StopReason.UNRECOVERABLE_ERROR),
    ],
)
def test_what_is_no_matter_for_the_model_stops_before_anything_else(
    kind: FaultKind, reason: StopReason
) -> None:
    read, ran = Machine(), Machine()
    read.answer(call("echo"), call("pay", fault=Fault.of(kind, "not yours")))
    ran.answer(call("echo"), call("pay", {"amount": 5}, effect=ONCE))
    ran.fail("echo", kind)
    for session in (read, ran):
        assert session.end.stop_reason is reason
        assert session.end.status is Status.FAILED
        assert session.end.error is not None
        assert session.end.error.kind is kind
        assert len(session.results()) == 2
    assert read.end.usage.tool_calls == 0
