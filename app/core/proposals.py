"""Which inputs may have led to the events that come next: what a replay tries.

A new event that can be the first of a decision gets a row in `_BEGINNINGS`; a decision that
begins with an event which is there already gets one more proposal. An input that could not come
here decides nothing or something else, so proposing too much does no harm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from app.core.effects import CallModel, CallTool, CheckStatus
from app.core.events import (
    ApprovalDecided,
    Body,
    Event,
    GuardTripped,
    LimitsRaised,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    Outcome,
    PhaseEntered,
    SecurityFlagged,
    SessionClaimed,
    SessionClosed,
    SessionForked,
    SessionResumed,
    TimerFired,
    ToolAttempted,
    ToolChecked,
    ToolFinished,
    TurnStarted,
    VerificationDecided,
)
from app.core.faults import Fault, FaultKind
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
from app.core.machine import decide
from app.core.phases.forking import Forking, GivenResult
from app.core.plan import owed
from app.core.state import QueuedText, State

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


def forking(at_us: int, body: SessionForked, written: Rest) -> Forking:
    """Return what was asked of a fork that wrote these events, up to its first claim."""
    task: QueuedText | None = None
    result: GivenResult | None = None
    for event in takewhile(lambda e: not isinstance(e.body, SessionClaimed), written):
        match event.body:
            case MessageReceived(text, tokens):
                task = QueuedText(text, tokens)
            case ToolFinished(outcome=Outcome.OK, executed=True) as given:
                result = GivenResult(
                    given.call_id,
                    given.output,
                    given.tokens,
                    given.digest,
                    given.empty,
                    given.notable,
                    given.content,
                )
            case _:
                pass
    return Forking(at_us, body.parent, body.at_seq, task, result, body.model, body.prompt)


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
            yield replace(_faulted(at_us, key, body, body.error), flagged=_flagged(rest))
            if body.outcome is Outcome.UNKNOWN:
                yield from _uncertain(state, at_us, key, body)
    if any(c.with_client and c.call.call_id == body.call_id for c in state.calls):
        yield _by_client(at_us, body)
    yield from _ending(state, body, rest)


def _by_client(at_us: int, body: ToolFinished) -> ClientAnswered:
    return ClientAnswered(
        at_us,
        body.call_id,
        body.output,
        None if body.error is None else body.error.message,
        body.tokens,
        body.digest,
        body.empty,
        body.notable,
        body.content,
    )


def _faulted(at_us: int, key: str, body: ToolFinished, fault: Fault) -> ToolFaulted:
    tokens, duration_ms = body.tokens, body.duration_ms
    return ToolFaulted(at_us, key, body.call_id, fault, tokens, duration_ms, 0.0)


def _flagged(rest: Rest) -> str | None:
    """Return the guard that stopped a call, which stands right behind its end."""
    then = rest[1].body if len(rest) > 1 else None
    return then.guard if isinstance(then, SecurityFlagged) else None


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


def _verified(state: State, body: VerificationDecided, rest: Rest) -> Iterator[Input]:
    """Propose that a person said it, and that the tool did."""
    at_us, call_id = rest[0].at_us, body.call_id
    closed = rest[1].body if len(rest) > 1 else None
    tokens = closed.tokens if isinstance(closed, ToolFinished) else 0
    content = closed.content if isinstance(closed, ToolFinished) else None
    yield Verified(at_us, call_id, body.happened, body.output, tokens, content)
    for key in _check_keys(state, call_id):
        yield StatusChecked(
            at_us, key, call_id, body.happened, body.output, tokens, None, 0.0, content
        )


def _checked(state: State, body: ToolChecked, rest: Rest) -> Iterator[Input]:
    """Propose that the call failed, that the tool did not know, and that it knew of no call yet."""
    at_us, call_id = rest[0].at_us, body.call_id
    for key in _tool_keys(state, call_id):
        yield ToolFaulted(at_us, key, call_id, body.fault, 0, 0.0, 0.0)
    for key in _check_keys(state, call_id):
        for happened in (None, False):
            yield StatusChecked(at_us, key, call_id, happened, None, 0, body.fault, 0.0)


def _check_keys(state: State, call_id: str) -> list[str]:
    return [
        effect.key
        for effect in owed(state)
        if isinstance(effect, CheckStatus) and effect.call.call_id == call_id
    ]


def _approved(_state: State, body: ApprovalDecided, rest: Rest) -> Iterator[Input]:
    yield ApprovalGiven(
        rest[0].at_us,
        body.approval_id,
        body.decision,
        body.message,
        body.arguments,
        body.digest,
        body.loop_digest,
        body.note,
        body.note_tokens,
        body.by,
    )


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
    ToolChecked: _checked,
    ApprovalDecided: _approved,
    GuardTripped: _ending,
    PhaseEntered: _ending,
    SessionClosed: _ending,
}
"""By the first event of a decision."""
