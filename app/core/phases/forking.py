"""Forking: what the first events of another session become when a new one goes on from there.

The fork takes what was done, not what was under way: open calls are closed, unless their result is
given, and messages that were not taken up stay behind (STATE-7).
"""

from dataclasses import dataclass

from app.core.canonical import Json
from app.core.draft import Draft
from app.core.events import (
    Event,
    MessageReceived,
    Outcome,
    Policy,
    SessionForked,
    ToolFinished,
)
from app.core.faults import Fault, FaultKind
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


def boundary(state: State) -> bool:
    """Return whether a fork can go on from here: not between a question and its answer."""
    if state.between_turns or state.phase is None:
        return True
    return state.phase in {Phase.OBSERVE, Phase.ACT, Phase.WAITING}


def forked(state: State, asked: Forking) -> tuple[Event, ...]:
    """Return the events by which a session goes on after a prefix of another one."""
    draft = Draft(state, asked.at_us)
    goes_on = not state.between_turns and asked.task is None
    turn = state.turn if goes_on else state.turn + 1
    draft.emit(SessionForked(asked.parent, asked.at_seq, turn, asked.model, asked.prompt))
    for open_call in draft.state.calls:
        if open_call.stage is not CallStage.FINISHED:
            _close(draft, open_call, asked.result)
    if asked.task is not None:
        if not draft.state.between_turns:
            end(draft, StopReason.CANCELLED)
        draft.emit(MessageReceived(asked.task.text, asked.task.tokens, Policy.ENQUEUE))
    elif draft.state.phase is Phase.OBSERVE:
        consider(draft)
    elif draft.state.phase in {Phase.ACT, Phase.WAITING}:
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
