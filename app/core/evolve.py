"""Folding: `evolve(state, event)` is what an event makes of a state. It decides nothing.

State, live or recovered, is always the fold of the journal; so nothing here may depend on a
setting, a guard or a prompt that could change between the writing and the reading.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from app.core import call_folds
from app.core.changing import changed
from app.core.context import MESSAGE_OVERHEAD, steering_tokens
from app.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Body,
    Event,
    GuardTripped,
    LimitsRaised,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    PhaseEntered,
    Policy,
    SessionClaimed,
    SessionClosed,
    SessionCreated,
    SessionForked,
    SessionInterrupted,
    SessionResumed,
    TimerFired,
    ToolAttempted,
    ToolChecked,
    ToolFinished,
    ToolIntended,
    TurnEnded,
    TurnStarted,
    Usage,
    VerificationAsked,
)
from app.core.lifecycle import Phase, StopReason
from app.core.messages import AssistantMessage, MessageCall, UserMessage
from app.core.state import (
    Ended,
    OpenCall,
    OpenRequest,
    QueuedText,
    State,
)
from app.core.windows import flush_calls, still_unknown


class BrokenJournalError(Exception):
    """Events that do not follow one another: a journal that this code cannot have written."""


def place(state: State | None, body: Body, at_us: int) -> Event:
    """Return the event that this body makes as the next of the journal."""
    if state is None:
        return Event(1, 0, 0, None, at_us, body)
    turn, step, phase = state.turn, state.step, state.phase
    if isinstance(body, TurnStarted):
        turn, step, phase = turn + 1, step if body.continues else 0, None
    elif isinstance(body, PhaseEntered):
        phase = body.target
        if phase is Phase.THINK and state.stopping is None:
            step += 1
    return Event(state.seq + 1, turn, step, phase, at_us, body)


def evolve(state: State | None, event: Event) -> State:
    """Return the state after one more event.

    Raises:
        BrokenJournalError: when the event is not the next one.

    """
    body = event.body
    if state is None:
        if not isinstance(body, SessionCreated) or event.seq != 1:
            message = f"A journal begins with session.created, not {body.TYPE} at {event.seq}."
            raise BrokenJournalError(message)
        return State(created=body, limits=body.limits, seq=1, at_us=event.at_us)
    if event.seq != state.seq + 1:
        message = f"Event {event.seq} does not follow {state.seq}."
        raise BrokenJournalError(message)
    fold = _FOLDS.get(type(body))
    folded = state if fold is None else fold(state, event, body)
    return changed(
        folded,
        seq=event.seq,
        at_us=event.at_us,
        turn=event.turn,
        step=event.step,
        phase=event.phase,
        active_us=folded.active_us + _active_since(state, event),
        active_from_us=None if _at_rest(folded) else event.at_us,
    )


def fold(events: Iterable[Event], state: State | None = None) -> State | None:
    """Return the state after all these events."""
    for event in events:
        state = evolve(state, event)
    return state


def _at_rest(state: State) -> bool:
    return state.phase is Phase.WAITING or state.between_turns


def _active_since(state: State, event: Event) -> int:
    """Return the active time up to this event: none while waiting or while nobody owned it."""
    if state.active_from_us is None or isinstance(
        event.body, SessionClaimed | TurnStarted | SessionForked
    ):
        return 0
    return max(0, event.at_us - state.active_from_us)


def _turn_started(state: State, event: Event, body: TurnStarted) -> State:
    goes_on = body.continues is not None
    held = goes_on and body.continues == state.forked_turn
    message = UserMessage(body.text, body.tokens, note=goes_on)
    context = state.context_tokens or state.prompt.tokens + state.tools_tokens
    context += body.tools_tokens - state.tools_tokens + body.tokens + MESSAGE_OVERHEAD
    fresh = changed(
        state,
        history=(*state.history, message),
        context_tokens=context,
        queue=state.queue if goes_on else state.queue[1:],
        resuming=None,
        forked_turn=event.turn if held else state.forked_turn,
        trace=body.trace,
        turn_at_us=event.at_us,
        turn_link=body.link,
        tools=body.tools,
        tools_tokens=body.tools_tokens,
        request=None,
        calls=(),
        stopping=None,
        pending=None,
        ended=None,
        phase_seq=0,
    )
    if goes_on:
        return fresh
    return changed(
        fresh,
        active_us=0,
        spent=Usage(),
        errors_running=0,
        actions=(),
        once_done=still_unknown(state.once_done),
        withdrawn=(),
        nudges=(),
        best="",
        best_tokens=0,
        facts=(),
    )


def _phase_entered(state: State, event: Event, body: PhaseEntered) -> State:
    moved = changed(state, phase=body.target, phase_seq=event.seq, phase_at_us=event.at_us)
    if body.source is Phase.WAITING:
        moved = changed(moved, pending=None)
    if body.target is Phase.WAITING:
        return changed(moved, pending=call_folds.pending(moved))
    if body.target is Phase.OBSERVE:
        return _steered(moved)
    if body.target in {Phase.REFLECT, Phase.DONE} and state.calls:
        return flush_calls(moved, ending=body.target is Phase.DONE)
    return moved


def _steered(state: State) -> State:
    """Put the messages which are to steer the turn into its history: a step begins here."""
    steering = [text for text in state.queue if text.policy is Policy.STEER]
    if not steering:
        return state
    return changed(
        state,
        queue=tuple(text for text in state.queue if text.policy is not Policy.STEER),
        history=(*state.history, *(UserMessage(text.text, text.tokens) for text in steering)),
        context_tokens=state.context_tokens + steering_tokens(state),
    )


def _model_requested(state: State, event: Event, body: ModelRequested) -> State:
    return changed(state, request=OpenRequest(event.seq, event.at_us, body.purpose))


def _model_answered(state: State, _event: Event, body: ModelAnswered) -> State:
    calls = tuple(
        MessageCall(c.call_id, c.wire_id, c.name, c.raw if c.replay is None else c.replay)
        for c in body.tool_calls
    )
    text = body.text if body.finish is None else body.finish.text
    message = AssistantMessage(text, body.tokens, calls, body.scratchpad)
    said = bool(text.strip()) or bool(calls)
    usage = body.usage
    context = state.context_tokens + body.tokens + MESSAGE_OVERHEAD
    if not usage.estimated:
        context = usage.input_tokens + max(body.tokens, usage.output_tokens) + MESSAGE_OVERHEAD
        if state.stopping is not None:
            context += state.tools_tokens
    return changed(
        state,
        request=None,
        history=(*state.history, message) if said else state.history,
        context_tokens=context,
        calls=tuple(OpenCall(call) for call in body.tool_calls),
        usage=state.usage.plus(usage),
        spent=state.spent.plus(usage),
        best=text if text.strip() else state.best,
        best_tokens=body.tokens if text.strip() else state.best_tokens,
    )


def _model_failed(state: State, _event: Event, body: ModelFailed) -> State:
    request = state.request
    spent, usage = state.spent.plus(body.usage), state.usage.plus(body.usage)
    if request is None or body.retry_at_us is None:
        return changed(state, request=None, spent=spent, usage=usage)
    again = replace(request, attempt=body.attempt + 1, not_before_us=body.retry_at_us)
    return changed(state, request=again, spent=spent, usage=usage)


def _guard_tripped(state: State, _event: Event, body: GuardTripped) -> State:
    tripped = changed(state, nudges=(*state.nudges, body.guard))
    if body.stop_reason is not None:
        tripped = changed(tripped, stopping=body.stop_reason)
    if body.tool is not None and body.tool not in state.withdrawn:
        tripped = changed(tripped, withdrawn=(*state.withdrawn, body.tool))
    if body.note is not None:
        note = UserMessage(body.note, body.note_tokens, note=True)
        tokens = tripped.context_tokens + body.note_tokens + MESSAGE_OVERHEAD
        tripped = changed(tripped, history=(*tripped.history, note), context_tokens=tokens)
    return tripped


def _message_received(state: State, _event: Event, body: MessageReceived) -> State:
    """Queue a message; one that interrupts goes before all that does not.

    Not before a turn which is cancelled already and has yet to begin: it would be taken for it.
    """
    text = QueuedText(body.text, body.tokens, body.policy)
    if body.policy is not Policy.INTERRUPT:
        return changed(state, queue=(*state.queue, text))
    cancelled = state.stopping is StopReason.CANCELLED and state.resuming is None
    kept = 1 if cancelled and state.between_turns else 0
    rest = state.queue[kept:]
    first = tuple(t for t in rest if t.policy is Policy.INTERRUPT)
    others = tuple(t for t in rest if t.policy is not Policy.INTERRUPT)
    return changed(state, queue=(*state.queue[:kept], *first, text, *others))


def _session_claimed(state: State, _event: Event, body: SessionClaimed) -> State:
    return changed(state, epoch=body.epoch, lease_us=body.lease_us)


def _session_forked(state: State, _event: Event, body: SessionForked) -> State:
    """Leave behind what was said to the other session and not taken up by it, and its closing."""
    return changed(
        state, queue=(), resuming=None, stopping=None, closed=False, forked_turn=body.turn
    )


def _turn_ended(state: State, event: Event, body: TurnEnded) -> State:
    if state.calls:
        state = flush_calls(state, ending=True)
    if event.turn > state.turn and state.queue:
        state = _never_begun(state)
    ended = Ended(body.status, body.stop_reason, body.result, body.error, event.at_us)
    history = state.history
    text = body.result.text
    if text.strip() and not isinstance(history[-1] if history else None, AssistantMessage):
        tokens = state.best_tokens + sum(fact.tokens for fact in state.facts)
        history = (*history, AssistantMessage(text, tokens))
        state = changed(state, context_tokens=state.context_tokens + tokens + MESSAGE_OVERHEAD)
    return changed(
        state,
        ended=ended,
        request=None,
        pending=None,
        history=history,
        queue=tuple(sorted(state.queue, key=lambda text: _NEXT.get(text.policy, len(_NEXT)))),
    )


def _session_resumed(state: State, _event: Event, body: SessionResumed) -> State:
    return changed(state, resuming=body.turn)


def _limits_raised(state: State, _event: Event, body: LimitsRaised) -> State:
    return changed(state, limits=body.limits)


def _session_closed(state: State, _event: Event, _body: SessionClosed) -> State:
    return changed(state, closed=True, queue=(), resuming=None)


def _never_begun(state: State) -> State:
    """Take the message out of the queue whose turn was given up before it began (poison)."""
    said = state.queue[0]
    return changed(
        state,
        queue=state.queue[1:],
        history=(*state.history, UserMessage(said.text, said.tokens)),
        context_tokens=state.context_tokens + said.tokens + MESSAGE_OVERHEAD,
    )


_NEXT: Final = {Policy.INTERRUPT: 0, Policy.STEER: 1}
"""What comes first in the next turn; everything else keeps its order behind."""

_FOLDS: Final[dict[type[Body], Callable[..., State]]] = {
    TurnStarted: _turn_started,
    PhaseEntered: _phase_entered,
    ModelRequested: _model_requested,
    ModelAnswered: _model_answered,
    ModelFailed: _model_failed,
    ToolIntended: call_folds.tool_intended,
    ToolAttempted: call_folds.tool_attempted,
    ToolFinished: call_folds.tool_finished,
    ApprovalRequested: call_folds.approval_requested,
    ApprovalDecided: call_folds.approval_decided,
    ToolChecked: call_folds.tool_checked,
    TimerFired: call_folds.timer_fired,
    SessionForked: _session_forked,
    GuardTripped: _guard_tripped,
    MessageReceived: _message_received,
    SessionClaimed: _session_claimed,
    SessionInterrupted: call_folds.session_interrupted,
    VerificationAsked: call_folds.verification_asked,
    TurnEnded: _turn_ended,
    SessionResumed: _session_resumed,
    LimitsRaised: _limits_raised,
    SessionClosed: _session_closed,
}
