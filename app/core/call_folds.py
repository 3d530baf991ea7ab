"""Folding what happens to the calls of a step: sent, tried again, asked about, closed.

Part of `app.core.evolve`: nothing here decides anything.
"""

from collections.abc import Callable
from dataclasses import replace

from app.core.changing import changed
from app.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Choice,
    Event,
    SessionInterrupted,
    TimerFired,
    ToolAttempted,
    ToolChecked,
    ToolFinished,
    ToolIntended,
    Usage,
    VerificationAsked,
)
from app.core.lifecycle import PendingKind, Phase
from app.core.plan import VERIFICATION
from app.core.state import CallStage, Doubt, OpenApproval, OpenCall, Pending, State


def pending(state: State) -> Pending | None:
    """Return what the open calls wait for; of several things the one that is to be done first."""
    if state.phase is not Phase.WAITING:
        return state.pending
    of_kind = (
        (PendingKind.VERIFICATION, [c for c in state.calls if c.in_doubt]),
        (PendingKind.APPROVAL, [c for c in state.calls if c.unapproved]),
        (PendingKind.CLIENT_TOOLS, [c for c in state.calls if c.with_client]),
    )
    for kind, calls in of_kind:
        if calls:
            return Pending(kind, tuple(c.call.call_id for c in calls))
    return state.pending if state.pending is None else replace(state.pending, calls=())


def _with_call(state: State, call_id: str, change: Callable[[OpenCall], OpenCall]) -> State:
    calls = tuple(change(c) if c.call.call_id == call_id else c for c in state.calls)
    return changed(state, calls=calls)


def tool_intended(state: State, event: Event, body: ToolIntended) -> State:
    """Count a call that is about to be sent."""
    one = Usage(tool_calls=1)
    counted = changed(state, usage=state.usage.plus(one), spent=state.spent.plus(one))
    return _with_call(
        counted,
        body.call_id,
        lambda c: replace(
            c,
            stage=CallStage.INTENDED,
            intended_seq=event.seq,
            intended_at_us=event.at_us,
        ),
    )


def tool_attempted(state: State, _event: Event, body: ToolAttempted) -> State:
    """Note when a call is tried again."""
    return _with_call(
        state,
        body.call_id,
        lambda c: replace(c, attempt=body.attempt, not_before_us=body.retry_at_us),
    )


def tool_finished(state: State, _event: Event, body: ToolFinished) -> State:
    """Close a call."""
    finished = _with_call(
        state,
        body.call_id,
        lambda c: replace(c, stage=CallStage.FINISHED, result=body, doubt=None),
    )
    return changed(finished, pending=pending(finished))


def approval_requested(state: State, event: Event, body: ApprovalRequested) -> State:
    """Note that a person was asked."""
    approval = OpenApproval(body.approval_id, event.at_us, body.expires_at_us)
    asked = _with_call(state, body.call_id, lambda c: replace(c, approval=approval))
    return changed(asked, pending=pending(asked))


def approval_decided(state: State, _event: Event, body: ApprovalDecided) -> State:
    """Take an approval with the arguments it is for; a denied call is closed by its own event."""
    if body.decision is not Choice.APPROVE:
        return state

    def approved(c: OpenCall) -> OpenCall:
        call = c.call
        if body.arguments is not None:
            call = replace(
                call,
                arguments=body.arguments,
                digest=body.digest,
                loop_digest=body.loop_digest,
            )
        return replace(c, call=call, approved=True, note=body.note, note_tokens=body.note_tokens)

    decided = _with_call(state, body.call_id, approved)
    return changed(decided, pending=pending(decided))


def tool_checked(state: State, event: Event, body: ToolChecked) -> State:
    """Note that the tool was asked, or will be, what became of a call."""

    def checked(c: OpenCall) -> OpenCall:
        doubt = c.doubt or Doubt(event.at_us, lost=False, over=True)
        return replace(c, doubt=replace(doubt, checks=body.attempt, check_at_us=body.retry_at_us))

    return _with_call(state, body.call_id, checked)


def timer_fired(state: State, event: Event, body: TimerFired) -> State:
    """Nobody can be at a lost call any more: now the tool can be asked, or else a person."""
    if body.timer != VERIFICATION:
        return state

    def over(c: OpenCall) -> OpenCall:
        if not c.in_doubt or c.doubt is None or c.doubt.over:
            return c
        check_at_us = event.at_us if c.call.checkable else None
        return replace(c, doubt=replace(c.doubt, over=True, check_at_us=check_at_us))

    return changed(state, calls=tuple(over(c) for c in state.calls))


def session_interrupted(state: State, event: Event, body: SessionInterrupted) -> State:
    """Note that nobody knows what became of these calls."""
    calls = tuple(
        replace(c, doubt=Doubt(event.at_us)) if c.call.call_id in body.calls else c
        for c in state.calls
    )
    return changed(state, calls=calls)


def verification_asked(state: State, _event: Event, body: VerificationAsked) -> State:
    """Wait for a person who knows what became of these calls."""
    return changed(state, pending=Pending(PendingKind.VERIFICATION, body.calls))
