"""What has to wait for somebody else: calls to be allowed, calls in doubt, calls of the caller.

The session waits only when nothing else of the step is left to do (TOOL-17).
"""

from app.core.draft import Draft
from app.core.events import ApprovalRequested, CallMade, EffectClass, VerificationAsked
from app.core.ids import approval_id
from app.core.lifecycle import Phase
from app.core.phases.admit import twin, uncertain
from app.core.plan import in_doubt, owed
from app.core.state import CallStage, OpenCall, State
from app.core.values import ApprovalReason


def held(state: State, open_call: OpenCall) -> bool:
    """Return whether a person has to allow the call first (TOOL-17).

    Besides the tool's own policy: a `once` call which may have happened already, in this turn or
    an earlier one, or in the session that this one was forked from.
    """
    call = open_call.call
    if open_call.stage is not CallStage.PROPOSED or open_call.approved:
        return False
    return reason(state, call) is not None


def reason(state: State, call: CallMade) -> ApprovalReason | None:
    """Return why a person must agree to a call, or None when nobody need."""
    once = call.effect is EffectClass.ONCE
    if once and uncertain(state, call):
        return ApprovalReason.UNKNOWN_OUTCOME
    if call.needs_approval:
        return ApprovalReason.POLICY
    return ApprovalReason.FORK if once and state.turn == state.forked_turn else None


def for_people(state: State) -> tuple[OpenCall, ...]:
    """Return the calls that people are asked about: of equal ones only the first."""
    return tuple(
        c for n, c in enumerate(state.calls) if held(state, c) and twin(state, n, c) is None
    )


def wait_for_others(draft: Draft) -> None:
    """Let the session wait, unless something is owed: first for who knows about calls in doubt.

    While the other side could still be at such a call, nobody is asked: a timer comes.
    """
    state = draft.state
    if owed(state):
        return
    doubts = in_doubt(state)
    if doubts:
        if state.phase is not Phase.WAITING and all(c.doubt and c.doubt.over for c in doubts):
            draft.move(Phase.WAITING)
            draft.emit(VerificationAsked(tuple(c.call.call_id for c in doubts)))
        return
    for open_call in for_people(state):
        if open_call.approval is None:
            _ask_approval(draft, open_call.call)
    if state.phase is not Phase.WAITING:
        draft.move(Phase.WAITING)


def _ask_approval(draft: Draft, call: CallMade) -> None:
    draft.emit(
        ApprovalRequested(
            approval_id=approval_id(draft.state.session_id, call.call_id),
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments or {},
            hash=call.digest,
            expires_at_us=draft.at_us + int(call.approval_ttl_s * 1_000_000),
        )
    )
