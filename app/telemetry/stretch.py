"""What spans, metrics and content are made of: stretches of a session that have come to an end."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.events import ModelAnswered, SessionCreated, ToolFinished, Trace, TurnEnded, Usage
from app.core.lifecycle import Phase
from app.core.messages import Message


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn that a stretch belongs to; `history` is what was said before this commit."""

    created: SessionCreated
    trace: Trace
    number: int
    at_us: int
    link: str | None
    history: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class PhaseLeft:
    """The machine was in a phase from `start_us` and left it for `target`."""

    turn: Turn
    phase: Phase
    target: Phase
    seq: int
    step: int
    start_us: int
    end_us: int
    guards: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ModelTried:
    """One attempt at a model call is over; `parent_seq` is where its phase was entered."""

    turn: Turn
    seq: int
    attempt: int
    step: int
    parent_seq: int
    start_us: int
    end_us: int
    usage: Usage
    answer: ModelAnswered | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ToolTried:
    """One attempt at a tool call is over."""

    turn: Turn
    call_id: str
    name: str
    seq: int
    attempt: int
    step: int
    parent_seq: int
    start_us: int
    end_us: int
    arguments: Mapping[str, object]
    finished: ToolFinished | None
    error: str | None


@dataclass(frozen=True, slots=True)
class TurnOver:
    """A turn has ended."""

    turn: Turn
    end_us: int
    step: int
    epoch: int
    ended: TurnEnded


Stretch = PhaseLeft | ModelTried | ToolTried | TurnOver
