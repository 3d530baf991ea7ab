"""What has come to its end: phases, attempts and turns, read from committed events.

A worker that takes a session over sees the same journal, so it finds the same stretches with the
same beginnings; nothing is remembered between two commits but what `State` holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.events import (
    NO_USAGE,
    Body,
    Event,
    GuardTripped,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    Outcome,
    PhaseEntered,
    SessionClaimed,
    SessionCreated,
    ToolAttempted,
    ToolFinished,
    ToolIntended,
    TurnEnded,
    TurnStarted,
    Usage,
)
from app.core.faults import FaultKind
from app.core.lifecycle import Phase
from app.core.messages import UserMessage
from app.core.state import CallStage, State
from app.telemetry.stretch import ModelTried, PhaseLeft, Stretch, ToolTried, Turn, TurnOver


@dataclass(slots=True)
class _Call:
    name: str
    arguments: Mapping[str, object]
    seq: int
    attempt: int
    start_us: int
    client: bool = False


@dataclass(slots=True)
class _Request:
    seq: int
    attempt: int
    start_us: int
    parent_seq: int


class _Walk:
    """Goes over one batch of events, starting from what the state before it says is open."""

    def __init__(self, before: State | None) -> None:
        """Take over what is open."""
        self.over: list[Stretch] = []
        self.created: SessionCreated | None = None
        self.turn: Turn | None = None
        self.phase: Phase | None = None
        self.phase_seq = self.phase_at_us = self.step = self.epoch = 0
        self.request: _Request | None = None
        self.calls: dict[str, _Call] = {}
        self.client: set[str] = set()
        self.guards: tuple[tuple[int, str], ...] = ()
        if before is not None:
            self._resume(before)

    def _resume(self, before: State) -> None:
        self.created = before.created
        self.epoch, self.step, self.phase = before.epoch, before.step, before.phase
        self.phase_seq, self.phase_at_us = before.phase_seq, before.phase_at_us
        if before.trace is not None and before.ended is None:
            self.turn = Turn(
                before.created,
                before.trace,
                before.turn,
                before.turn_at_us,
                before.turn_link,
                before.history,
            )
        request = before.request
        if request is not None:
            start = max(request.at_us, request.not_before_us)
            self.request = _Request(request.seq, request.attempt, start, before.phase_seq)
        self.client = {c.call.call_id for c in before.calls if c.call.client}
        for open_call in before.calls:
            if open_call.stage is CallStage.INTENDED:
                start = max(open_call.intended_at_us, open_call.not_before_us)
                call = open_call.call
                self.calls[call.call_id] = _Call(
                    call.name,
                    call.arguments or {},
                    open_call.intended_seq,
                    open_call.attempt,
                    start,
                    call.client,
                )

    def begin_turn(self, event: Event, body: TurnStarted) -> None:
        """A turn begins: its root span is known from here on."""
        if self.created is not None:
            said = UserMessage(body.text, body.tokens)
            self.turn = Turn(self.created, body.trace, event.turn, event.at_us, body.link, (said,))
        self.phase, self.phase_seq = None, 0

    def enter(self, event: Event, body: PhaseEntered) -> None:
        """One phase is over and the next begins.

        Going to wait with calls in flight closes them here: nobody expects their answers any
        more, and what a person says of them later is told by the waiting span. Those which the
        caller carries out go on meanwhile.
        """
        if body.target is Phase.WAITING:
            for call_id in [i for i, call in self.calls.items() if not call.client]:
                self._close_call(event, call_id, None, FaultKind.UNKNOWN_OUTCOME.value)
        self._leave(event, body.target)
        self.phase, self.phase_seq, self.phase_at_us = body.target, event.seq, event.at_us
        self.guards = ()

    def _leave(self, event: Event, target: Phase) -> None:
        if self.turn is None or self.phase is None or self.phase is Phase.DONE:
            return
        self.over.append(
            PhaseLeft(
                self.turn,
                self.phase,
                target,
                self.phase_seq,
                self.step,
                self.phase_at_us,
                event.at_us,
                self.guards,
            )
        )

    def guard(self, event: Event, body: GuardTripped) -> None:
        """Keep a guard's name for the span of its phase."""
        self.guards = (*self.guards, (event.at_us, body.guard))

    def ask(self, event: Event, _body: ModelRequested) -> None:
        """A model call begins."""
        self.request = _Request(event.seq, 1, event.at_us, self.phase_seq)

    def answered(self, event: Event, body: ModelAnswered) -> None:
        """A model call succeeded."""
        self._close_request(event, body.usage, body, None)
        self.request = None
        self.client = {call.call_id for call in body.tool_calls if call.client}

    def failed(self, event: Event, body: ModelFailed) -> None:
        """An attempt failed; the next one begins when the wait is over."""
        self._close_request(event, body.usage, None, body.error.kind.value)
        request = self.request
        if request is None or body.retry_at_us is None:
            self.request = None
        else:
            start = max(event.at_us, body.retry_at_us)
            self.request = _Request(request.seq, body.attempt + 1, start, request.parent_seq)

    def _close_request(
        self, event: Event, usage: Usage, answer: ModelAnswered | None, error: str | None
    ) -> None:
        request = self.request
        if request is None or self.turn is None:
            return
        self.over.append(
            ModelTried(
                self.turn,
                request.seq,
                request.attempt,
                event.step,
                request.parent_seq,
                request.start_us,
                max(request.start_us, event.at_us),
                usage,
                answer,
                error,
            )
        )

    def intend(self, event: Event, body: ToolIntended) -> None:
        """A tool call begins."""
        client = body.call_id in self.client
        self.calls[body.call_id] = _Call(
            body.name, body.arguments, event.seq, 1, event.at_us, client
        )

    def attempted(self, event: Event, body: ToolAttempted) -> None:
        """An attempt failed and another follows."""
        call = self.calls.get(body.call_id)
        self._close_call(event, body.call_id, None, body.error.kind.value)
        if call is not None:
            start = max(event.at_us, body.retry_at_us)
            self.calls[body.call_id] = _Call(
                call.name, call.arguments, call.seq, body.attempt, start
            )

    def finished(self, event: Event, body: ToolFinished) -> None:
        """A tool call is closed."""
        error = None
        if body.outcome is not Outcome.OK:
            error = body.outcome.value if body.error is None else body.error.kind.value
        self._close_call(event, body.call_id, body, error)

    def _close_call(
        self, event: Event, call_id: str, finished: ToolFinished | None, error: str | None
    ) -> None:
        call = self.calls.pop(call_id, None)
        if call is None or self.turn is None or (call.seq < self.phase_seq and not call.client):
            return  # never sent, or its span ended when the session went to wait
        if event.at_us < call.start_us:
            return  # closed while it waited for its next attempt, which never was
        self.over.append(
            ToolTried(
                self.turn,
                call_id,
                call.name,
                call.seq,
                call.attempt,
                event.step,
                self.phase_seq,
                call.start_us,
                event.at_us,
                call.arguments,
                finished,
                error,
            )
        )

    def claimed(self, _event: Event, body: SessionClaimed) -> None:
        """Keep the epoch."""
        self.epoch = body.epoch

    def end_turn(self, event: Event, body: TurnEnded) -> None:
        """Close whatever is open, the turn last."""
        if self.request is not None and event.at_us >= self.request.start_us:
            self._close_request(event, NO_USAGE, None, body.stop_reason.value)
        self._leave(event, Phase.DONE)
        if self.turn is not None:
            self.over.append(TurnOver(self.turn, event.at_us, event.step, self.epoch, body))
        self.turn = self.request = self.phase = None
        self.calls.clear()


_STEPS: Final[dict[type[Body], Callable[..., None]]] = {
    TurnStarted: _Walk.begin_turn,
    PhaseEntered: _Walk.enter,
    GuardTripped: _Walk.guard,
    ModelRequested: _Walk.ask,
    ModelAnswered: _Walk.answered,
    ModelFailed: _Walk.failed,
    ToolIntended: _Walk.intend,
    ToolAttempted: _Walk.attempted,
    ToolFinished: _Walk.finished,
    SessionClaimed: _Walk.claimed,
    TurnEnded: _Walk.end_turn,
}


def stretches(before: State | None, events: Sequence[Event]) -> list[Stretch]:
    """Return what these events brought to an end, in their order."""
    walk = _Walk(before)
    for event in events:
        body = event.body
        if isinstance(body, SessionCreated):
            walk.created = body
            continue
        step = _STEPS.get(type(body))
        if step is not None:
            step(walk, event, body)
        walk.step = event.step
    return walk.over
