"""Forking: what the first events of another session become when a new one goes on from there.

The fork takes what was done, not what was under way: open calls are closed, unless their result is
given, and messages that were not taken up stay behind (STATE-7).
"""

from dataclasses import dataclass

from app.core.canonical import Json
from app.core.draft import Draft, IllegalTransitionError
from app.core.events import (
    Event,
    MessageReceived,
    Outcome,
    Policy,
    SessionForked,
    ToolFinished,
)
from app.core.faults import FATAL, Fault, FaultKind, classify
from app.core.lifecycle import Phase, StopReason
from app.core.phases.act import advance
from app.core.phases.admit import close
from app.core.phases.ending import end
from app.core.phases.observe import consider
from app.core.state import CallStage, OpenCall, QueuedText, State


@dataclass(frozen=True, slots=True)
class GivenResult:
    """What a call is to have returned, as `ToolReturned` has it."""

    call_id: str
    output: Json
    tokens: int
    digest: str
    empty: bool = False
    notable: bool = False
    content: str | None = None


@dataclass(frozen=True, slots=True)
class Forking:
    """What is asked of a fork. `model` and `prompt` are those of the parent, where they differ."""

    at_us: int
    parent: str
    at_seq: int
    task: QueuedText | None = None
    result: GivenResult | None = None
    model: str | None = None
    prompt: str | None = None


def boundary(state: State, call_id: str | None = None) -> bool:
    """Return whether a fork can go on from here, and give that call a result if one is named.

    Not between a question and its answer; not after a guard or a fault has decided that the turn
    ends, so that the fork decides again; not after a turn that ended as a security matter. A call
    can be given a result as long as it has none.
    """
    if call_id is not None and all(c.call.call_id != call_id for c in _open(state)):
        return False
    if state.between_turns:
        return not (state.ended is not None and state.ended.reason is StopReason.SECURITY)
    if state.phase is None:
        return True
    ends = state.stopping is not None or any(_is_fatal(c) for c in state.calls)
    return state.phase in {Phase.OBSERVE, Phase.ACT, Phase.WAITING} and not ends


def _open(state: State) -> tuple[OpenCall, ...]:
    return tuple(c for c in state.calls if c.stage is not CallStage.FINISHED)


def _is_fatal(open_call: OpenCall) -> bool:
    fault = None if open_call.result is None else open_call.result.error
    return fault is not None and classify(fault) in FATAL


def forked(state: State, asked: Forking) -> tuple[Event, ...]:
    """Return the events by which a session goes on after a prefix of another one.

    Raises:
        IllegalTransitionError: when the prefix does not end at a boundary.

    """
    if not boundary(state, None if asked.result is None else asked.result.call_id):
        message = f"No fork goes on from event {state.seq}, in phase {state.phase}."
        raise IllegalTransitionError(message)
    draft = Draft(state, asked.at_us)
    goes_on = not state.between_turns and asked.task is None
    turn = state.turn if goes_on else state.turn + 1
    draft.emit(SessionForked(asked.parent, asked.at_seq, turn, asked.model, asked.prompt))
    for open_call in _open(state):
        _close(draft, open_call, asked.result)
    if asked.task is not None:
        if not draft.state.between_turns:
            end(draft, StopReason.CANCELLED)
        draft.emit(MessageReceived(asked.task.text, asked.task.tokens, Policy.ENQUEUE))
    elif draft.state.phase is Phase.OBSERVE:
        consider(draft)
    elif draft.state.calls:
        advance(draft)
    return tuple(draft.events)


def _close(draft: Draft, open_call: OpenCall, given: GivenResult | None) -> None:
    call = open_call.call
    if given is not None and given.call_id == call.call_id:
        draft.emit(
            ToolFinished(
                call.call_id,
                call.name,
                Outcome.OK,
                output=given.output,
                content=given.content,
                tokens=given.tokens,
                digest=given.digest,
                empty=given.empty,
                notable=given.notable,
            )
        )
        return
    fault = Fault.of(
        FaultKind.CONFLICT,
        "The call was not made here: this session was forked from another one before it had ended.",
    )
    close(draft, open_call, Outcome.CANCELLED, fault, executed=False, may_repeat=True)
