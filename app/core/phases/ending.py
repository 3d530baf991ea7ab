"""How a turn stops: the closing call where one can be bought, the digest elsewhere (API-9)."""

from app.core import guards
from app.core.context import assemble, digest, next_input, request_hash, steering_tokens
from app.core.draft import Draft
from app.core.events import (
    EffectClass,
    GuardTripped,
    ModelRequested,
    Outcome,
    Purpose,
    Result,
    ToolFinished,
    TurnEnded,
)
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import DIGEST_ONLY, Phase, StopReason, status_of
from app.core.messages import sequence_fault
from app.core.state import CallStage, OpenCall

FAULT_TOKENS = 60
"""What an error of our own costs the model to read, roughly; corrected by the next usage report."""


def request(draft: Draft, purpose: Purpose) -> None:
    """Enter THINK and ask for one answer."""
    draft.move(Phase.THINK)
    state = draft.state
    messages = assemble(state, purpose)
    tools = () if purpose is Purpose.CLOSING else tuple(ref.name for ref in state.offered)
    draft.emit(
        ModelRequested(
            model=state.model.name,
            purpose=purpose,
            sha256=request_hash(messages),
            messages=len(messages) + 1,
            input_tokens=next_input(state, purpose),
            tools=tools,
            prompt=state.prompt,
        )
    )


def stop(draft: Draft, reason: StopReason, detail: str) -> None:
    """Let a guard end the turn: by a closing call from the reserve, or at once with a digest."""
    draft.emit(GuardTripped(reason.value, detail, stop_reason=reason))
    state = draft.state
    size = next_input(state, Purpose.CLOSING) + steering_tokens(state)
    buys = (
        reason not in DIGEST_ONLY
        and guards.closing_affordable(state.limits, state.spent, size)
        and guards.within_cost(state.limits, state.model, state.spent, size)
        and guards.fits_window(state.model, size)
        and sequence_fault(state.history) is None
    )
    if not buys:
        end(draft, reason)
        return
    if state.phase is Phase.REFLECT:
        draft.move(Phase.OBSERVE)
    request(draft, Purpose.CLOSING)


def end(
    draft: Draft, reason: StopReason, result: Result | None = None, error: Fault | None = None
) -> None:
    """Close every open call, enter DONE and end the turn. Without a result, the digest is it."""
    close_calls(draft, reason)
    draft.move(Phase.DONE)
    state = draft.state
    if result is None:
        result = Result(digest(state.facts, state.best), complete=False)
    draft.emit(TurnEnded(status_of(reason), reason, result, state.spent, error))


def close_calls(draft: Draft, reason: StopReason) -> None:
    """Give each open call a typed result, so that no provider refuses the history (STATE-10)."""
    for open_call in draft.state.calls:
        if open_call.stage is not CallStage.FINISHED:
            draft.emit(_closed(open_call, reason))


def _closed(open_call: OpenCall, reason: StopReason) -> ToolFinished:
    call = open_call.call
    sent = open_call.stage is CallStage.INTENDED
    outcome, fault = Outcome.CANCELLED, _closing_fault(reason, sent=sent)
    if sent and call.effect is EffectClass.ONCE:
        outcome = Outcome.UNKNOWN
        fault = Fault.of(
            FaultKind.UNKNOWN_OUTCOME,
            f"The turn ended ({reason.value}) while this call was in flight; it may have happened. "
            "Do not repeat it without asking the user.",
        )
    return ToolFinished(
        call.call_id,
        call.name,
        outcome,
        error=fault,
        tokens=FAULT_TOKENS,
        attempts=open_call.attempt,
        executed=sent,
        may_repeat=outcome is Outcome.CANCELLED,
    )


def _closing_fault(reason: StopReason, *, sent: bool) -> Fault:
    if reason is StopReason.TOTAL_TIMEOUT:
        return Fault.of(FaultKind.TIMEOUT, "The turn's time was over before this call had ended.")
    how = "was interrupted" if sent else "was not made"
    return Fault.of(FaultKind.CONFLICT, f"The call {how}: the turn ended ({reason.value}).")
