"""ACT: which of the calls run, in what order, and what an outcome leads to.

A refused call (bad arguments, unknown tool, repetition, too many) is closed by `tool.finished`
alone; `tool.intended` is written only for a call that is about to be sent.
"""

from app.core import guards
from app.core.context import content_of
from app.core.draft import Draft
from app.core.events import (
    EffectClass,
    Outcome,
    ToolAttempted,
    ToolFinished,
    ToolIntended,
    VerificationAsked,
    VerificationDecided,
)
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
from app.core.guards import Repeat, Verdict
from app.core.ids import idempotency_key
from app.core.inputs import ToolFaulted, ToolReturned, Verified
from app.core.lifecycle import Phase, StopReason
from app.core.phases import reflect
from app.core.phases.ending import FAULT_TOKENS, close_calls, end
from app.core.plan import in_doubt
from app.core.state import CallStage, OpenCall, State

_ALREADY = "You already have this result; change your strategy or answer."
_STOPS = {
    Repeat.THIRD_ACTION: StopReason.REPEATED_ACTION,
    Repeat.THIRD_RESULT: StopReason.REPEATED_RESULT,
}


def begin(draft: Draft) -> None:
    """Enter ACT with the calls of the answer, close those that must not run, start the others."""
    draft.move(Phase.ACT)
    for index, open_call in enumerate(draft.state.calls):
        stopped = _admit(draft, index, open_call)
        if stopped is not None:
            close_calls(draft, stopped)
            detail = f"{open_call.call.name} was called again after a warning"
            reflect.after_calls(draft, stopped=(stopped, detail))
            return
    advance(draft)


def _admit(draft: Draft, index: int, open_call: OpenCall) -> StopReason | None:
    """Close a call that must not run; return the reason when it ends the turn."""
    state, call = draft.state, open_call.call
    refusal = _refusal(state, index, open_call)
    if refusal is not None:
        forgivable = refusal.kind is not FaultKind.UNAVAILABLE
        _close(draft, open_call, Outcome.ERROR, refusal, executed=False, may_repeat=forgivable)
        return None
    if _twin(state, index, open_call) is not None:
        return None
    verdict = guards.judge_call(
        tool=call.name,
        digest=call.digest,
        effect=call.effect,
        polling=call.polling,
        max_repeat=state.limits.max_repeat,
        actions=state.actions,
        once_done=state.once_done,
    )
    if verdict.repeat in _STOPS:
        fault = Fault.of(FaultKind.CONFLICT, _ALREADY)
        _close(draft, open_call, Outcome.ERROR, fault, executed=False)
        return _STOPS[verdict.repeat]
    if verdict.repeat is not Repeat.FRESH:
        _withhold(draft, open_call, verdict)
    return None


def _refusal(state: State, index: int, open_call: OpenCall) -> Fault | None:
    call = open_call.call
    most = state.limits.max_tool_calls_per_step
    if index >= most:
        message = f"Only {most} calls are made in one step; this one was not. Ask again next step."
        return Fault.of(FaultKind.RATE_LIMITED, message, hint=Hint.SMALLER_SCOPE)
    if call.fault is not None:
        return call.fault
    if call.name in state.withdrawn:
        message = f"{call.name} failed twice running and is withdrawn for this turn."
        return Fault.of(FaultKind.UNAVAILABLE, message, hint=Hint.OTHER_TOOL)
    return None


def _twin(state: State, index: int, open_call: OpenCall) -> OpenCall | None:
    """Return the earlier call of this step that is the same action, if any (LOOP-7, TOOL-10)."""
    call = open_call.call
    if call.polling:
        return None
    for other in state.calls[:index]:
        refused = other.result is not None and not other.result.executed
        if other.call.digest == call.digest and not refused:
            return other
    return None


def _withhold(draft: Draft, open_call: OpenCall, verdict: Verdict) -> None:
    earlier = verdict.earlier
    if verdict.repeat is Repeat.ONCE_UNKNOWN:
        message = "This action may have happened already; it is not made again. Ask the user."
        fault = Fault.of(FaultKind.UNKNOWN_OUTCOME, message)
        _close(draft, open_call, Outcome.ERROR, fault, executed=False)
    elif verdict.repeat is Repeat.SAME_RESULT or earlier is None:
        message = f"The last two calls of {open_call.call.name} gave the same result. {_ALREADY}"
        fault = Fault.of(FaultKind.CONFLICT, message)
        _close(draft, open_call, Outcome.ERROR, fault, executed=False)
    else:
        _repeat_result(draft, open_call, earlier.outcome, earlier.content, earlier.result_digest)


def _repeat_result(
    draft: Draft, open_call: OpenCall, outcome: Outcome, content: str, result_digest: str
) -> None:
    call = open_call.call
    fault = None if outcome is Outcome.OK else Fault.of(FaultKind.CONFLICT, _ALREADY)
    draft.emit(
        ToolFinished(
            call.call_id,
            call.name,
            outcome,
            error=fault,
            content=f"{content}\n\n[{_ALREADY}]",
            tokens=FAULT_TOKENS + len(content) // 4,
            executed=False,
            digest=result_digest,
        )
    )


def _close(
    draft: Draft,
    open_call: OpenCall,
    outcome: Outcome,
    fault: Fault,
    *,
    executed: bool,
    may_repeat: bool = False,
    tokens: int = FAULT_TOKENS,
    duration_ms: float = 0.0,
) -> None:
    draft.emit(
        ToolFinished(
            open_call.call.call_id,
            open_call.call.name,
            outcome,
            error=fault,
            tokens=tokens,
            attempts=open_call.attempt,
            duration_ms=duration_ms,
            executed=executed,
            may_repeat=may_repeat,
        )
    )


def advance(draft: Draft) -> None:
    """Give twins their results, start what may start, and go on to REFLECT when all is closed."""
    _close_twins(draft)
    calls = draft.state.calls
    if all(c.stage is CallStage.FINISHED for c in calls):
        reflect.after_calls(draft)
        return
    waiting = [c for c in calls if c.stage is CallStage.PROPOSED]
    ready = [c for c in waiting if not _blocked(draft.state, c)]
    running = any(c.stage is CallStage.INTENDED for c in calls)
    if not ready and not running:
        ready = waiting[:1]  # dependencies in a circle: one has to go first
    for open_call in ready:
        call = open_call.call
        key = idempotency_key(draft.state.session_id, call.call_id)
        arguments = call.arguments or {}
        draft.emit(ToolIntended(call.call_id, call.name, arguments, call.effect, key))


def _close_twins(draft: Draft) -> None:
    for index, open_call in enumerate(draft.state.calls):
        if open_call.stage is not CallStage.PROPOSED:
            continue
        twin = _twin(draft.state, index, open_call)
        if twin is not None and twin.result is not None:
            result = twin.result
            content = content_of(result)
            _repeat_result(draft, open_call, result.outcome, content, result.digest)


def _blocked(state: State, open_call: OpenCall) -> bool:
    """Return whether a call must wait for another of its step (LOOP-12)."""
    position = state.calls.index(open_call)
    if _twin(state, position, open_call) is not None:
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
    open_call = _find(draft.state, answer.call_id)
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
    open_call = _find(draft.state, failed.call_id)
    call, fault = open_call.call, failed.fault
    unsafe = call.effect is EffectClass.ONCE and fault.sent
    policy = RetryPolicy(max_attempts=1 if unsafe else call.max_attempts)
    response = respond(fault, open_call.attempt, policy, failed.jitter)
    match response:
        case Retry(after_us):
            again = draft.at_us + after_us
            draft.emit(ToolAttempted(call.call_id, open_call.attempt + 1, fault, again))
        case Stop(fault_class):
            _close_failed(draft, open_call, failed, fault)
            security = fault_class is FaultClass.SECURITY
            reason = StopReason.SECURITY if security else StopReason.UNRECOVERABLE_ERROR
            end(draft, reason, error=fault)
        case ToModel():
            lost = unsafe and classify(fault) is FaultClass.TRANSIENT
            if lost and fault.kind is not FaultKind.RATE_LIMITED:
                _close_unknown(draft, open_call, failed)
            else:
                _close_failed(draft, open_call, failed, fault)
            advance(draft)


def _close_failed(draft: Draft, open_call: OpenCall, failed: ToolFaulted, fault: Fault) -> None:
    _close(
        draft,
        open_call,
        Outcome.ERROR,
        fault,
        executed=True,
        may_repeat=fault.kind is FaultKind.INVALID_ARGS,
        tokens=failed.tokens,
        duration_ms=failed.duration_ms,
    )


def _close_unknown(draft: Draft, open_call: OpenCall, failed: ToolFaulted) -> None:
    message = (
        f"It is not known whether {open_call.call.name} happened ({failed.fault.message}). "
        "It is not made again; tell the user and let them check."
    )
    fault = Fault.of(FaultKind.UNKNOWN_OUTCOME, message)
    _close(
        draft,
        open_call,
        Outcome.UNKNOWN,
        fault,
        executed=True,
        tokens=FAULT_TOKENS,
        duration_ms=failed.duration_ms,
    )


def ask_verification(draft: Draft) -> None:
    """Let the session wait until a person says what became of the calls in doubt."""
    draft.move(Phase.WAITING)
    draft.emit(VerificationAsked(tuple(c.call.call_id for c in in_doubt(draft.state))))


def verified(draft: Draft, answer: Verified) -> None:
    """Close a call in doubt as a person says, and go on when it was the last."""
    open_call = _find(draft.state, answer.call_id)
    draft.emit(VerificationDecided(answer.call_id, answer.happened, answer.output))
    if answer.happened:
        output = answer.output if answer.output is not None else "It happened; no output is known."
        finished = ToolFinished(
            answer.call_id,
            open_call.call.name,
            Outcome.OK,
            output=output,
            tokens=answer.tokens,
            attempts=open_call.attempt,
        )
        draft.emit(finished)
    else:
        message = "It was verified that this call did not happen; you may make it again."
        fault = Fault.of(FaultKind.UNAVAILABLE, message)
        finished = ToolFinished(
            answer.call_id,
            open_call.call.name,
            Outcome.ERROR,
            error=fault,
            tokens=FAULT_TOKENS,
            attempts=open_call.attempt,
            executed=False,
            may_repeat=True,
        )
        draft.emit(finished)
    if in_doubt(draft.state):
        return
    if draft.state.phase is Phase.WAITING:
        draft.move(Phase.ACT)
    advance(draft)


def _find(state: State, call_id: str) -> OpenCall:
    return next(c for c in state.calls if c.call.call_id == call_id)
