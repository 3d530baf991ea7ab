"""Admission: which of an answer's calls must not run, and what the model is told instead.

A refused call (bad arguments, unknown tool, repetition, too many) is closed by `tool.finished`
alone; `tool.intended` is written only for a call that is about to be sent.
"""

from app.core import guards
from app.core.draft import Draft
from app.core.events import CallMade, EffectClass, Outcome, ToolFinished
from app.core.faults import Fault, FaultKind, Hint
from app.core.guards import Repeat, Verdict
from app.core.lifecycle import StopReason
from app.core.phases.ending import FAULT_TOKENS
from app.core.state import CallStage, OpenCall, State

_ALREADY = "You already have this result; change your strategy or answer."
_STOPS = {
    Repeat.THIRD_ACTION: StopReason.REPEATED_ACTION,
    Repeat.THIRD_RESULT: StopReason.REPEATED_RESULT,
}


def admit(draft: Draft, index: int, open_call: OpenCall) -> StopReason | None:
    """Close a call that must not run; return the reason when it ends the turn."""
    state, call = draft.state, open_call.call
    refusal = _refusal(state, index, open_call)
    if refusal is not None:
        forgivable = refusal.kind is not FaultKind.UNAVAILABLE
        close(draft, open_call, Outcome.ERROR, refusal, executed=False, may_repeat=forgivable)
        return None
    if twin(state, index, open_call) is not None:
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
        close(draft, open_call, Outcome.ERROR, fault, executed=False)
        return _STOPS[verdict.repeat]
    if verdict.repeat not in {Repeat.FRESH, Repeat.ONCE_UNKNOWN}:  # the latter: a person decides
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


def twin(state: State, index: int, open_call: OpenCall) -> OpenCall | None:
    """Return the call of this step that does for this one, if any (LOOP-7, TOOL-10).

    That is an earlier one with the same action; or a later one which was made already, where a
    person changed the arguments. A tool that is polled may be asked twice at once, but not where
    asking changes the world.
    """
    call = open_call.call
    if call.polling and call.effect is not EffectClass.ONCE:
        return None
    for position, other in enumerate(state.calls):
        same = position != index and other.call.digest == call.digest
        if same and _does_for(other, open_call, earlier=position < index):
            return other
    return None


def _does_for(other: OpenCall, open_call: OpenCall, *, earlier: bool) -> bool:
    """Return whether the other one is made, or its denial holds for this one as well."""
    if other.result is None:
        return earlier or other.stage is CallStage.INTENDED
    if other.result.outcome is Outcome.DENIED:
        return not open_call.approved
    return other.result.executed


def uncertain(state: State, call: CallMade) -> bool:
    """Return whether the same `once` action may have happened already (TOOL-10)."""
    return any(a.digest == call.digest and a.outcome is Outcome.UNKNOWN for a in state.once_done)


def _withhold(draft: Draft, open_call: OpenCall, verdict: Verdict) -> None:
    earlier = verdict.earlier
    if earlier is None:  # no one action: the results of two others were the same
        message = f"The last two calls of {open_call.call.name} gave the same result. {_ALREADY}"
        fault = Fault.of(FaultKind.CONFLICT, message)
        close(draft, open_call, Outcome.ERROR, fault, executed=False)
    else:
        repeat_result(
            draft,
            open_call,
            outcome=earlier.outcome,
            content=earlier.content,
            tokens=earlier.tokens,
            result_digest=earlier.result_digest,
        )


def repeat_result(
    draft: Draft,
    open_call: OpenCall,
    *,
    outcome: Outcome,
    content: str,
    tokens: int,
    result_digest: str,
) -> None:
    """Close a call with the result of an equal one, and say so."""
    call = open_call.call
    fault = None if outcome is Outcome.OK else Fault.of(FaultKind.CONFLICT, _ALREADY)
    draft.emit(
        ToolFinished(
            call.call_id,
            call.name,
            outcome,
            error=fault,
            content=f"{content}\n\n[{_ALREADY}]",
            tokens=tokens + FAULT_TOKENS,
            executed=False,
            digest=result_digest,
        )
    )


def close(
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
    """Close a call with a fault."""
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
