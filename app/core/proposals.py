"""Which inputs may have led to the events that come next: what a replay tries.

A new event that can be the first of a decision gets a row in `_BEGINNINGS`; a decision that
begins with an event which is there already gets one more proposal. An input that could not come
here decides nothing or something else, so proposing too much does no harm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from app.core.effects import CallModel, CallTool
from app.core.events import (
    Body,
    Event,
    GuardTripped,
    LimitsRaised,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    Outcome,
    PhaseEntered,
    SessionClaimed,
    SessionClosed,
    SessionResumed,
    TimerFired,
    ToolAttempted,
    ToolFinished,
    TurnStarted,
    VerificationDecided,
)
from app.core.faults import Fault, FaultKind
from app.core.inputs import (
    CancelAsked,
    Claimed,
    CloseAsked,
    Input,
    ModelFaulted,
    ModelReturned,
    ResumeAsked,
    TimerRang,
    Told,
    ToolFaulted,
    ToolReturned,
    TurnPrepared,
    Verified,
)
from app.core.machine import decide
from app.core.plan import owed
from app.core.state import State

LOOK_AHEAD: Final = 2
"""How many events a proposal may look at."""

_MARK: Final = "\0"
"""Stands in a text where the machine puts in another one."""

Rest = Sequence[Event]


def proposals(state: State, rest: Rest) -> Iterator[Input]:
    """Return inputs after which the journal may go on as it does; the likeliest first."""
    first = rest[0]
    propose = _BEGINNINGS.get(type(first.body))
    if propose is not None:
        yield from propose(state, first.body, rest)


def _claimed(_state: State, body: SessionClaimed, rest: Rest) -> Iterator[Input]:
    yield Claimed(rest[0].at_us, body.worker, body.epoch, body.lease_us)


def _prepared(_state: State, body: TurnStarted, rest: Rest) -> Iterator[Input]:
    yield TurnPrepared(
        rest[0].at_us, body.trace, body.tools, body.tools_tokens, body.text, body.tokens
    )


def _answered(state: State, body: ModelAnswered, rest: Rest) -> Iterator[Input]:
    for key in _model_keys(state):
        yield ModelReturned(rest[0].at_us, key, body)


def _failed(state: State, body: ModelFailed, rest: Rest) -> Iterator[Input]:
    at_us = rest[0].at_us
    for key in _model_keys(state):
        yield ModelFaulted(at_us, key, body.error, 0.0, body.usage)
        if body.error.kind is FaultKind.EMPTY_ANSWER:
            yield ModelReturned(at_us, key, ModelAnswered("", (), body.usage, "", 0))


def _model_keys(state: State) -> list[str]:
    return [effect.key for effect in owed(state) if isinstance(effect, CallModel)]


def _tool_keys(state: State, call_id: str) -> list[str]:
    return [
        effect.key
        for effect in owed(state)
        if isinstance(effect, CallTool) and effect.call.call_id == call_id
    ]


def _finished(state: State, body: ToolFinished, rest: Rest) -> Iterator[Input]:
    at_us = rest[0].at_us
    for key in _tool_keys(state, body.call_id):
        if body.error is None:
            yield ToolReturned(
                at_us,
                key,
                body.call_id,
                body.output,
                body.content,
                body.tokens,
                body.digest,
                body.duration_ms,
                body.empty,
                body.notable,
            )
        else:
            yield _faulted(at_us, key, body, body.error)
            if body.outcome is Outcome.UNKNOWN:
                yield from _uncertain(state, at_us, key, body)
    yield from _ending(state, body, rest)


def _faulted(at_us: int, key: str, body: ToolFinished, fault: Fault) -> ToolFaulted:
    tokens, duration_ms = body.tokens, body.duration_ms
    return ToolFaulted(at_us, key, body.call_id, fault, tokens, duration_ms, 0.0)


def _uncertain(state: State, at_us: int, key: str, body: ToolFinished) -> Iterator[Input]:
    """Propose the fault whose message the machine has wrapped into one of its own.

    What it puts around a message is seen by giving it one that can be recognised.
    """
    marked = Fault.of(FaultKind.UNKNOWN_OUTCOME, _MARK)
    decided = decide(state, _faulted(at_us, key, body, marked)).events
    head, _, tail = _message(decided[0].body).partition(_MARK)
    message = _message(body).removeprefix(head).removesuffix(tail)
    yield _faulted(at_us, key, body, replace(marked, message=message))


def _message(body: Body) -> str:
    fault = getattr(body, "error", None)
    return fault.message if isinstance(fault, Fault) else ""


def _attempted(state: State, body: ToolAttempted, rest: Rest) -> Iterator[Input]:
    for key in _tool_keys(state, body.call_id):
        yield ToolFaulted(rest[0].at_us, key, body.call_id, body.error, 0, 0.0, 0.0)


def _told(_state: State, body: MessageReceived, rest: Rest) -> Iterator[Input]:
    yield Told(rest[0].at_us, body.text, body.tokens, body.policy)


def _rang(_state: State, body: TimerFired, rest: Rest) -> Iterator[Input]:
    yield TimerRang(rest[0].at_us, body.timer)


def _resumed(_state: State, _body: SessionResumed, rest: Rest) -> Iterator[Input]:
    raised = rest[1].body if len(rest) > 1 else None
    limits = raised.limits if isinstance(raised, LimitsRaised) else None
    yield ResumeAsked(rest[0].at_us, limits)


def _verified(_state: State, body: VerificationDecided, rest: Rest) -> Iterator[Input]:
    closed = rest[1].body if len(rest) > 1 else None
    tokens = closed.tokens if isinstance(closed, ToolFinished) else 0
    yield Verified(rest[0].at_us, body.call_id, body.happened, body.output, tokens)


def _ending(_state: State, _body: Body, rest: Rest) -> Iterator[Input]:
    yield CancelAsked(rest[0].at_us)
    yield CloseAsked(rest[0].at_us)


_BEGINNINGS: Final[dict[type[Body], Callable[..., Iterator[Input]]]] = {
    SessionClaimed: _claimed,
    TurnStarted: _prepared,
    ModelAnswered: _answered,
    ModelFailed: _failed,
    ToolFinished: _finished,
    ToolAttempted: _attempted,
    MessageReceived: _told,
    TimerFired: _rang,
    SessionResumed: _resumed,
    VerificationDecided: _verified,
    GuardTripped: _ending,
    PhaseEntered: _ending,
    SessionClosed: _ending,
}
"""By the first event of a decision."""
