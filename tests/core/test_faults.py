"""What follows a fault: the table of classes, the waits between attempts, and once calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.context import fault_text
from app.core.events import EffectClass, ModelFailed, Outcome, ToolAttempted
from app.core.faults import (
    Fault,
    FaultClass,
    FaultKind,
    Hint,
    Retry,
    RetryPolicy,
    Stop,
    ToModel,
    classify,
    respond,
)
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.state import Pending
from tests.core.machine_kit import IDEMPOTENT, ONCE, READ, SECOND, Machine, call, error

TRANSIENT = {
    FaultKind.TIMEOUT,
    FaultKind.RATE_LIMITED,
    FaultKind.UNAVAILABLE,
    FaultKind.EMPTY_ANSWER,
}
FATAL = {
    FaultKind.SECURITY: FaultClass.SECURITY,
    FaultKind.REFUSED_REQUEST: FaultClass.UNRECOVERABLE,
}


@pytest.mark.req("TOOL-9")
@pytest.mark.parametrize("kind", FaultKind)
def test_the_class_of_each_kind_says_what_follows(kind: FaultKind) -> None:
    fault = Fault.of(kind, "what happened")
    response = respond(fault, 1, RetryPolicy(), 0.0)
    if kind in FATAL:
        assert response == Stop(FATAL[kind])
    elif kind in TRANSIENT:
        assert classify(fault) is FaultClass.TRANSIENT
        assert isinstance(response, Retry)
        assert respond(fault, 3, RetryPolicy(), 0.0) == ToModel()
    else:
        assert classify(fault) is FaultClass.SEMANTIC
        assert response == ToModel()


@pytest.mark.req("TOOL-8")
@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_tells_the_model_what_to_do(kind: FaultKind) -> None:
    fault = Fault.of(kind, "what happened")
    assert isinstance(fault.retry_hint, Hint)
    assert f'"kind":"{kind.value}"' in fault_text(fault)
    assert Fault.of(kind, "x", hint=Hint.ASK_USER).retry_hint is Hint.ASK_USER


@pytest.mark.req("TOOL-9")
@given(
    attempt=st.integers(1, 12),
    jitter=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.integers(0, 90 * SECOND),
)
def test_waits_double_within_bounds_and_never_undercut_retry_after(
    attempt: int, jitter: float, asked: int | None
) -> None:
    policy = RetryPolicy(max_attempts=20)
    fault = Fault.of(FaultKind.RATE_LIMITED, "slow down", retry_after_us=asked)
    response = respond(fault, attempt, policy, jitter)
    if asked is not None and asked > policy.longest_wait_us:
        assert response == ToModel()
        return
    assert isinstance(response, Retry)
    full = min(policy.cap_us, policy.base_us * 2 ** (attempt - 1))
    assert response.after_us >= max(full // 2, asked or 0)
    assert response.after_us <= max(full, asked or 0)


@pytest.mark.req("TOOL-9", "OPS-6")
@pytest.mark.case("C027")
def test_a_model_call_is_tried_three_times_and_each_wait_is_in_the_journal() -> None:
    session = Machine()
    fault = Fault.of(FaultKind.RATE_LIMITED, "429", retry_after_us=3 * SECOND)
    session.model_fails(fault)
    assert session.owes_model().not_before_us == session.now_us + 3 * SECOND
    session.pass_s(3)
    session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "503"), jitter=0.5)
    assert session.owes_model().not_before_us == session.now_us + 750_000
    assert session.owes_model().attempt == 3
    session.model_fails(Fault.of(FaultKind.TIMEOUT, "nothing came"))
    failed = [e.body.retry_at_us is None for e in session.events if isinstance(e.body, ModelFailed)]
    assert failed == [False, False, True]
    assert session.end.stop_reason is StopReason.MODEL_UNAVAILABLE
    assert session.end.status is Status.FAILED
    assert session.end.error is not None
    assert session.end.error.message == "nothing came"


@pytest.mark.req("TOOL-9")
@pytest.mark.case("C029")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultKind.REFUSED_REQUEST, StopReason.UNRECOVERABLE_ERROR),
        (FaultKind.SECURITY, StopReason.SECURITY),
        (FaultKind.PERMISSION, StopReason.MODEL_UNAVAILABLE),
    ],
)
def test_a_refused_model_call_is_not_tried_again(kind: FaultKind, reason: StopReason) -> None:
    session = Machine()
    session.model_fails(Fault.of(kind, "invalid_request_error: no"))
    assert session.end.stop_reason is reason
    assert session.end.status is Status.FAILED
    assert session.end.error is not None
    assert "invalid_request_error" in session.end.error.message


@pytest.mark.req("TOOL-10", "TOOL-11")
@pytest.mark.case("C085")
@pytest.mark.parametrize("effect", [READ, IDEMPOTENT])
def test_what_is_safe_to_repeat_is_tried_again_under_one_key(effect: EffectClass) -> None:
    session = Machine()
    session.answer(call("pay", {"amount": 5}, effect=effect))
    keys = set()
    for attempt in (1, 2):
        keys.add(session.owes_tool("pay").call.call_id)
        assert session.owes_tool("pay").attempt == attempt
        session.fail("pay", FaultKind.TIMEOUT)
    session.fail("pay", FaultKind.UNAVAILABLE)
    assert keys == {"t1_c1_1"}
    (result,) = session.results()
    assert (result.outcome, result.attempts) == (Outcome.ERROR, 3)
    tried = [e.body.attempt for e in session.events if isinstance(e.body, ToolAttempted)]
    assert tried == [2, 3]


@pytest.mark.req("TOOL-10")
@pytest.mark.case("C085")
@pytest.mark.parametrize(
    "kind",
    [FaultKind.TIMEOUT, FaultKind.UNAVAILABLE, FaultKind.INTERNAL, FaultKind.UNKNOWN_OUTCOME],
)
def test_a_once_call_that_may_have_been_sent_is_unknown_and_never_sent_again(
    kind: FaultKind,
) -> None:
    session = Machine()
    session.answer(call("pay", {"amount": 5}, effect=ONCE))
    session.fail("pay", kind)
    (result,) = session.results()
    assert result.outcome is Outcome.UNKNOWN
    assert error(result).kind is FaultKind.UNKNOWN_OUTCOME
    session.step_ok(call("echo"))
    session.answer(call("pay", {"amount": 5.0}, effect=ONCE))
    assert session.running() == []
    assert session.state.phase is Phase.WAITING
    assert session.state.pending == Pending(PendingKind.APPROVAL, ("t1_c3_1",))
    assert session.state.usage.tool_calls == 2


@pytest.mark.req("TOOL-10")
def test_a_once_call_that_was_provably_not_sent_is_tried_again() -> None:
    session = Machine()
    session.answer(call("pay", {"amount": 5}, effect=ONCE))
    session.fail("pay", FaultKind.UNAVAILABLE, sent=False)
    assert session.owes_tool("pay").attempt == 2
    session.fail("pay", FaultKind.TIMEOUT, sent=True)
    assert session.results()[-1].outcome is Outcome.UNKNOWN


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize(
    "kind", [FaultKind.RATE_LIMITED, FaultKind.INVALID_ARGS, FaultKind.PERMISSION]
)
def test_a_once_call_that_was_answered_with_no_is_an_error_and_not_unknown(
    kind: FaultKind,
) -> None:
    session = Machine()
    session.answer(call("pay", {"amount": 5}, effect=ONCE))
    session.fail("pay", kind)
    (result,) = session.results()
    assert result.outcome is Outcome.ERROR
    assert error(result).kind is kind
