"""ACT: in what order the admitted calls run, and what an outcome leads to."""

from typing import assert_never

from app.core.context import content_of
from app.core.draft import Draft
from app.core.events import (
    EffectClass,
    Outcome,
    SecurityFlagged,
    ToolAttempted,
    ToolChecked,
    ToolFinished,
    ToolIntended,
)
from app.core.faults import (
    FATAL,
    Fault,
    FaultClass,
    FaultKind,
    Retry,
    RetryPolicy,
    Stop,
    ToModel,
    classify,
    respond,
)
from app.core.ids import idempotency_key
from app.core.inputs import ToolFaulted, ToolReturned
from app.core.lifecycle import Phase, StopReason
from app.core.phases import reflect
from app.core.phases.admit import admit, close, repeat_result
from app.core.phases.admit import twin as twin_of
from app.core.phases.ending import FAULT_TOKENS, close_calls, end
from app.core.phases.holding import for_people, held, wait_for_others
from app.core.state import CallStage, OpenCall, State

_UNCERTAIN = frozenset(
    {FaultKind.TIMEOUT, FaultKind.UNAVAILABLE, FaultKind.UNKNOWN_OUTCOME, FaultKind.INTERNAL}
)
"""Faults after which nobody knows what the other side did, if anything was sent (TOOL-10)."""

FIRST_CHECK_US = 1_000_000
"""How long after such a fault the tool is asked what became of the call."""


def begin(draft: Draft) -> None:
    """Enter ACT with the calls of the answer, close those that must not run, start the others."""
    draft.move(Phase.ACT)
    for open_call in draft.state.calls:
        fault = open_call.call.fault
        if fault is not None and _fatal(draft, open_call, fault, tokens=FAULT_TOKENS):
            return
    for index, open_call in enumerate(draft.state.calls):
        stopped = admit(draft, index, open_call)
        if stopped is not None:
            close_calls(draft, stopped)
            detail = f"{open_call.call.name} was called again after a warning"
            reflect.after_calls(draft, stopped=(stopped, detail))
            return
    advance(draft)


def advance(draft: Draft) -> None:
    """Give twins their results, start what may start, and go on to REFLECT when all is closed.

    What only a person can move on waits until everything else of the step is over (TOOL-17).
    """
    _close_twins(draft)
    state = draft.state
    over = all(c.stage is CallStage.FINISHED for c in state.calls)
    ready = () if over else _ready(state)
    if (over or ready) and state.phase is Phase.WAITING:
        draft.move(Phase.ACT)
    if over:
        reflect.after_calls(draft)
        return
    for open_call in ready:
        call = open_call.call
        key = idempotency_key(state.session_id, call.call_id)
        arguments = call.arguments or {}
        draft.emit(ToolIntended(call.call_id, call.name, arguments, call.effect, key))
    wait_for_others(draft)


def _ready(state: State) -> tuple[OpenCall, ...]:
    """Return the calls that may start now."""
    waiting = [c for c in state.calls if c.stage is CallStage.PROPOSED and not held(state, c)]
    ready = tuple(c for c in waiting if not _blocked(state, c))
    if ready or any(c.stage is CallStage.INTENDED for c in state.calls) or for_people(state):
        return ready
    return tuple(waiting[:1])  # dependencies in a circle: one has to go first


def _close_twins(draft: Draft) -> None:
    for index, open_call in enumerate(draft.state.calls):
        if open_call.stage is not CallStage.PROPOSED:
            continue
        twin = twin_of(draft.state, index, open_call)
        if twin is not None and twin.result is not None:
            result = twin.result
            repeat_result(
                draft,
                open_call,
                outcome=result.outcome,
                content=content_of(result),
                tokens=result.tokens,
                result_digest=result.digest,
            )


def _blocked(state: State, open_call: OpenCall) -> bool:
    """Return whether a call must wait for another of its step (LOOP-12)."""
    position = state.calls.index(open_call)
    if twin_of(state, position, open_call) is not None:
        return True
    call = open_call.call
    for index, other in enumerate(state.calls):
        if other.stage is CallStage.FINISHED or index == position:
            continue
        if other.call.name in call.depends_on:
            return True
        same_group = call.serial_group is not None and other.call.serial_group == call.serial_group
        if same_group and index < position:
            return True
    return False


def returned(draft: Draft, answer: ToolReturned) -> None:
    """Close a call that succeeded."""
    open_call = find(draft.state, answer.call_id)
    draft.emit(
        ToolFinished(
            answer.call_id,
            open_call.call.name,
            Outcome.OK,
            output=answer.output,
            content=answer.content,
            tokens=answer.tokens,
            attempts=open_call.attempt,
            duration_ms=answer.duration_ms,
            digest=answer.digest,
            empty=answer.empty,
            notable=answer.notable,
        )
    )
    advance(draft)


def faulted(draft: Draft, failed: ToolFaulted) -> None:
    """Take a failure: try again where that is safe, stop, or close the call with an error.

    A `once` call that may have been sent is never tried again: its outcome is unknown (TOOL-10).
    """
    open_call = find(draft.state, failed.call_id)
    call, fault = open_call.call, failed.fault
    unsafe = call.effect is EffectClass.ONCE and fault.sent
    policy = RetryPolicy(max_attempts=1 if unsafe else call.max_attempts)
    response = respond(fault, open_call.attempt, policy, failed.jitter)
    match response:
        case Retry(after_us):
            again = draft.at_us + after_us
            draft.emit(ToolAttempted(call.call_id, open_call.attempt + 1, fault, again))
        case Stop():
            _fatal(draft, open_call, fault, tokens=failed.tokens, duration_ms=failed.duration_ms)
        case ToModel():
            if not (unsafe and fault.kind in _UNCERTAIN):
                _close_failed(draft, open_call, failed)
            elif call.checkable:
                again = draft.at_us + FIRST_CHECK_US
                draft.emit(ToolChecked(call.call_id, 0, fault, again))
            else:
                close_unknown(draft, open_call, fault, duration_ms=failed.duration_ms)
            advance(draft)
        case _:
            assert_never(response)


def _fatal(
    draft: Draft, open_call: OpenCall, fault: Fault, *, tokens: int, duration_ms: float = 0.0
) -> bool:
    """End the turn for a fault that is no matter for the model; return whether it is one."""
    fault_class = classify(fault)
    if fault_class not in FATAL:
        return False
    sent = open_call.stage is CallStage.INTENDED
    close(
        draft,
        open_call,
        Outcome.ERROR,
        fault,
        executed=sent,
        tokens=tokens,
        duration_ms=duration_ms,
    )
    security = fault_class is FaultClass.SECURITY
    end(draft, StopReason.SECURITY if security else StopReason.UNRECOVERABLE_ERROR, error=fault)
    return True


def _close_failed(draft: Draft, open_call: OpenCall, failed: ToolFaulted) -> None:
    close(
        draft,
        open_call,
        Outcome.ERROR,
        failed.fault,
        executed=True,
        may_repeat=failed.fault.kind is FaultKind.INVALID_ARGS,
        tokens=failed.tokens,
        duration_ms=failed.duration_ms,
    )
    if failed.flagged is not None:
        call = open_call.call
        message = failed.fault.message
        draft.emit(SecurityFlagged(failed.flagged, message, call.call_id, call.name))


def close_unknown(
    draft: Draft, open_call: OpenCall, why: Fault, *, duration_ms: float = 0.0
) -> None:
    """Close a call of which nobody knows whether it happened."""
    message = (
        f"It is not known whether {open_call.call.name} happened ({why.message}). "
        "It is not made again unless a person approves it; tell the user and let them check."
    )
    fault = Fault.of(FaultKind.UNKNOWN_OUTCOME, message)
    close(draft, open_call, Outcome.UNKNOWN, fault, executed=True, duration_ms=duration_ms)


def find(state: State, call_id: str) -> OpenCall:
    """Return the open call with this id."""
    return next(c for c in state.calls if c.call.call_id == call_id)
