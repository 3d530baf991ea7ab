"""The machine: `decide(state, input)` is the only place where decisions are taken.

It is total over the table `LEGAL`: an input in a phase that the table does not list raises
`IllegalTransitionError`. An answer to an effect that is owed no longer (the call was cancelled
meanwhile) and a request that has become moot decide nothing, and say so with no events.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.core.draft import Draft, IllegalTransitionError
from app.core.events import (
    EffectClass,
    Event,
    GuardTripped,
    LimitsRaised,
    MessageReceived,
    Policy,
    SessionClaimed,
    SessionClosed,
    SessionInterrupted,
    SessionResumed,
    TimerFired,
    Trace,
    TurnStarted,
)
from app.core.inputs import (
    ApprovalGiven,
    CancelAsked,
    Claimed,
    ClientAnswered,
    CloseAsked,
    Input,
    ModelFaulted,
    ModelReturned,
    ResumeAsked,
    StatusChecked,
    TimerRang,
    Told,
    ToolFaulted,
    ToolReturned,
    TurnPrepared,
    Verified,
)
from app.core.lifecycle import Phase, Ruling, StopReason, Verb, rule
from app.core.phases import act, asking, think
from app.core.phases.ending import end, stop
from app.core.phases.observe import go_on
from app.core.plan import APPROVAL, TOTAL_TIMEOUT, VERIFICATION, due_timer, owed, time_left_us
from app.core.state import CallStage, State

_ANSWERS: Final = (ModelReturned, ModelFaulted, ToolReturned, ToolFaulted, StatusChecked)
_ANY: Final = frozenset({None, *Phase})
_OPEN: Final = _ANY - {Phase.DONE}

LEGAL: Final[dict[type[Input], frozenset[Phase | None]]] = {
    Claimed: _ANY,
    Told: _ANY,
    CancelAsked: _ANY,
    CloseAsked: _ANY,
    ResumeAsked: _ANY,
    Verified: _ANY,
    ApprovalGiven: _ANY,
    ClientAnswered: _ANY,
    StatusChecked: frozenset({Phase.ACT}),
    TurnPrepared: frozenset({None, Phase.DONE}),
    ModelReturned: frozenset({Phase.THINK}),
    ModelFaulted: frozenset({Phase.THINK}),
    ToolReturned: frozenset({Phase.ACT}),
    ToolFaulted: frozenset({Phase.ACT}),
    TimerRang: _OPEN,
}
"""In which phases an input may come; a request from outside may come in any."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided: events to append, and the state which is their fold."""

    events: tuple[Event, ...]
    state: State


def decide(state: State, given: Input) -> Decision:
    """Return what follows from an input.

    Raises:
        IllegalTransitionError: when the input cannot come in this phase.

    """
    if _stale(state, given):
        return Decision((), state)
    if state.phase not in LEGAL[type(given)]:
        message = f"{type(given).__name__} cannot come in phase {state.phase}."
        raise IllegalTransitionError(message)
    draft = Draft(state, given.at_us)
    _TAKES[type(given)](draft, given)
    return Decision(tuple(draft.events), draft.state)


def _stale(state: State, given: Input) -> bool:
    if isinstance(given, _ANSWERS):
        return all(effect.key != given.key for effect in owed(state))
    if isinstance(given, TurnPrepared):
        return not owed(state) or not state.between_turns
    return isinstance(given, TimerRang) and state.between_turns


def _claimed(draft: Draft, given: Claimed) -> None:
    draft.emit(SessionClaimed(given.worker, given.epoch, given.lease_us))
    lost = tuple(
        c.call.call_id
        for c in draft.state.calls
        if c.stage is CallStage.INTENDED
        and c.call.effect is EffectClass.ONCE
        and c.doubt is None
        and not c.call.client
    )
    if lost:
        draft.emit(SessionInterrupted(lost))
    if not draft.state.between_turns and draft.state.phase is None:
        go_on(draft)


def _prepared(draft: Draft, given: TurnPrepared) -> None:
    state = draft.state
    resuming = state.resuming
    cancelled = state.stopping is StopReason.CANCELLED
    if resuming is None:
        text, tokens = state.queue[0].text, state.queue[0].tokens
    else:
        text, tokens = given.note, given.note_tokens
    draft.emit(
        TurnStarted(
            text=text,
            tokens=tokens,
            trace=given.trace,
            tools=given.tools,
            tools_tokens=given.tools_tokens,
            continues=resuming,
            link=None if resuming is None or state.trace is None else traceparent(state.trace),
        )
    )
    if cancelled:
        end(draft, StopReason.CANCELLED)
    else:
        go_on(draft)


def traceparent(trace: Trace) -> str:
    """Return where a turn's spans hang, as W3C Trace Context writes it."""
    return f"00-{trace.trace_id}-{trace.span_id}-{'01' if trace.sampled else '00'}"


def _told(draft: Draft, given: Told) -> None:
    """Take a message; where it interrupts, the open turn ends here and the next one is its own."""
    if draft.state.barred:
        return
    draft.emit(MessageReceived(given.text, given.tokens, given.policy))
    if given.policy is Policy.INTERRUPT:
        _interrupt(draft)


def _interrupt(draft: Draft) -> None:
    """End what goes on: the open turn, or a stopped one that was to go on. No other message's."""
    state = draft.state
    if not state.between_turns:
        end(draft, StopReason.CANCELLED)
    elif state.resuming is not None:
        _cancel_before_it_begins(draft)


def _resume_asked(draft: Draft, given: ResumeAsked) -> None:
    state = draft.state
    if state.ended is None or state.barred or owed(state):
        return  # the next turn is on its way already, or there never will be one
    ruling = rule(Verb.RESUME, state.ended.status, reason=state.ended.reason)
    allowed = ruling is Ruling.ACCEPT or (
        ruling is Ruling.ONLY_WITH_LIMITS and given.limits is not None
    )
    if not allowed:
        return
    draft.emit(SessionResumed(state.turn))
    if given.limits is not None:
        draft.emit(LimitsRaised(given.limits))


def _cancel_asked(draft: Draft, _given: CancelAsked) -> None:
    """End the turn; one that is owed but not begun yet ends as soon as it begins."""
    if not draft.state.between_turns:
        end(draft, StopReason.CANCELLED)
    elif owed(draft.state):
        _cancel_before_it_begins(draft)


def _cancel_before_it_begins(draft: Draft) -> None:
    reason = StopReason.CANCELLED
    if draft.state.stopping is not reason:
        draft.emit(GuardTripped(reason.value, "cancelled before it began", stop_reason=reason))


def _verified(draft: Draft, given: Verified) -> None:
    if any(c.in_doubt and c.call.call_id == given.call_id for c in draft.state.calls):
        asking.verified(draft, given)


def _approval_given(draft: Draft, given: ApprovalGiven) -> None:
    for call in draft.state.calls:
        asked = call.approval is not None and call.approval.approval_id == given.approval_id
        if asked and call.unapproved:
            asking.decided(draft, call, given)
            return


def _client_answered(draft: Draft, given: ClientAnswered) -> None:
    if any(c.with_client and c.call.call_id == given.call_id for c in draft.state.calls):
        asking.client_answered(draft, given)


def _close_asked(draft: Draft, _given: CloseAsked) -> None:
    if draft.state.closed:
        return
    if not draft.state.between_turns:
        end(draft, StopReason.CANCELLED)
    draft.emit(SessionClosed())


def _timer_rang(draft: Draft, given: TimerRang) -> None:
    """Believe no timer: one set for a turn that is over, or too early, means nothing."""
    state = draft.state
    if given.timer == TOTAL_TIMEOUT and time_left_us(state, draft.at_us) == 0:
        draft.emit(TimerFired(given.timer))
        if state.stopping is not None:  # the closing call was cut: its turn has its reason already
            end(draft, state.stopping)
            return
        limit = state.limits.total_timeout_s
        stop(draft, StopReason.TOTAL_TIMEOUT, f"the turn's {limit:g} s of active time are over")
    elif given.timer == VERIFICATION and due_timer(state, draft.at_us) == VERIFICATION:
        draft.emit(TimerFired(given.timer))
        act.advance(draft)
    elif given.timer == APPROVAL and due_timer(state, draft.at_us) == APPROVAL:
        draft.emit(TimerFired(given.timer))
        asking.lapse(draft)


_TAKES: Final[dict[type[Input], Callable[..., None]]] = {
    Claimed: _claimed,
    TurnPrepared: _prepared,
    ModelReturned: think.answered,
    ModelFaulted: think.faulted,
    ToolReturned: act.returned,
    ToolFaulted: act.faulted,
    Told: _told,
    ResumeAsked: _resume_asked,
    CancelAsked: _cancel_asked,
    CloseAsked: _close_asked,
    Verified: _verified,
    ApprovalGiven: _approval_given,
    ClientAnswered: _client_answered,
    StatusChecked: asking.checked,
    TimerRang: _timer_rang,
}
