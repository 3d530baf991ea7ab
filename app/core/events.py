"""The journal's events: frozen values, one class a type, each with its schema version.

An `Event` is a body with its place (seq, turn, step, phase, time). The shape of a body is part of
the HTTP contract (docs/events.md is generated from here); a change of shape raises `V` and brings
an upcaster in `app.core.upcasters`, so that every journal ever written can be folded.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, get_args

from app.core.canonical import Json
from app.core.faults import Fault
from app.core.lifecycle import Phase, Status, StopReason
from app.core.values import (
    NO_USAGE,
    CallMade,
    EffectClass,
    Finish,
    Limits,
    ModelRef,
    Outcome,
    Policy,
    PromptRef,
    Purpose,
    Result,
    ToolRef,
    Trace,
    Usage,
)


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """A session exists; what it is pinned to. `tools` None means every tool that is enabled."""

    TYPE: ClassVar[str] = "session.created"
    V: ClassVar[int] = 1
    session_id: str
    agent: str
    agent_version: int
    mode: str
    model: ModelRef
    prompt: PromptRef
    limits: Limits
    tools: tuple[str, ...] | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins with the user's text; tools are frozen here, and the trace gets its root."""

    TYPE: ClassVar[str] = "turn.started"
    V: ClassVar[int] = 1
    text: str
    tokens: int
    trace: Trace
    tools: tuple[ToolRef, ...] = ()
    tools_tokens: int = 0
    continues: int | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """The machine moved; on the wire the fields are `from` and `to`."""

    TYPE: ClassVar[str] = "phase.entered"
    V: ClassVar[int] = 1
    source: Phase | None
    target: Phase


@dataclass(frozen=True, slots=True)
class ModelRequested:
    """A model call is about to be bought: its size and ingredients, never the messages."""

    TYPE: ClassVar[str] = "model.requested"
    V: ClassVar[int] = 1
    model: str
    purpose: Purpose
    sha256: str
    messages: int
    input_tokens: int
    tools: tuple[str, ...]
    prompt: PromptRef


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model's answer, whole: text, calls, usage; `scratchpad` is reasoning kept apart."""

    TYPE: ClassVar[str] = "model.answered"
    V: ClassVar[int] = 1
    text: str
    tool_calls: tuple[CallMade, ...]
    usage: Usage
    finish_reason: str
    tokens: int
    model: str = ""
    scratchpad: str | None = None
    finish: Finish | None = None
    attempt: int = 1
    ttft_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """One attempt at a model call failed; `retry_at_us` is when the next one may be made."""

    TYPE: ClassVar[str] = "model.failed"
    V: ClassVar[int] = 1
    error: Fault
    attempt: int
    retry_at_us: int | None = None
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class ToolIntended:
    """A call is about to be made: written before it is sent (the ledger's intent)."""

    TYPE: ClassVar[str] = "tool.intended"
    V: ClassVar[int] = 1
    call_id: str
    name: str
    arguments: dict[str, object]
    effect: EffectClass
    key: str


@dataclass(frozen=True, slots=True)
class ToolAttempted:
    """A further attempt at the same call follows; written from the second attempt on."""

    TYPE: ClassVar[str] = "tool.attempted"
    V: ClassVar[int] = 1
    call_id: str
    attempt: int
    error: Fault
    retry_at_us: int


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call is closed (the ledger's result).

    `content` is what the model reads, where it is not simply the output or the error. `executed`
    is false for a call that was never sent; `notable` says that the result is long enough for
    equal results to mean something (LOOP-7); `may_repeat` that calling again in the same words is
    no repetition (bad arguments, or it did not happen).
    """

    TYPE: ClassVar[str] = "tool.finished"
    V: ClassVar[int] = 1
    call_id: str
    name: str
    outcome: Outcome
    output: Json = None
    error: Fault | None = None
    content: str | None = None
    tokens: int = 0
    attempts: int = 1
    duration_ms: float = 0.0
    executed: bool = True
    digest: str = ""
    empty: bool = False
    notable: bool = False
    may_repeat: bool = False


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step is over: how many of its calls succeeded, and the tokens spent in the turn so far."""

    TYPE: ClassVar[str] = "step.finished"
    V: ClassVar[int] = 1
    calls: int
    succeeded: int
    tokens: int


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """A guard acted. `stop_reason` when it ends the turn; `note` is what the model is told."""

    TYPE: ClassVar[str] = "guard.tripped"
    V: ClassVar[int] = 1
    guard: str
    detail: str
    stop_reason: StopReason | None = None
    note: str | None = None
    note_tokens: int = 0
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A user message after the first arrived."""

    TYPE: ClassVar[str] = "message.received"
    V: ClassVar[int] = 1
    text: str
    tokens: int
    policy: Policy = Policy.REJECT


@dataclass(frozen=True, slots=True)
class VerificationAsked:
    """A `once` call has an unknown outcome and a person must say what happened."""

    TYPE: ClassVar[str] = "verification.requested"
    V: ClassVar[int] = 1
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerificationDecided:
    """A person said whether an uncertain call happened."""

    TYPE: ClassVar[str] = "verification.decided"
    V: ClassVar[int] = 1
    call_id: str
    happened: bool
    output: Json = None


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of the session fired: `total_timeout` or `verification`."""

    TYPE: ClassVar[str] = "timer.fired"
    V: ClassVar[int] = 1
    timer: str


@dataclass(frozen=True, slots=True)
class SessionClaimed:
    """A worker took the session over under a new epoch (the fencing token)."""

    TYPE: ClassVar[str] = "session.claimed"
    V: ClassVar[int] = 1
    worker: str
    epoch: int
    lease_us: int


@dataclass(frozen=True, slots=True)
class SessionInterrupted:
    """An owner was lost while these `once` calls were in flight: their outcome is in doubt."""

    TYPE: ClassVar[str] = "session.interrupted"
    V: ClassVar[int] = 1
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """A user asked for a stopped or failed turn to go on."""

    TYPE: ClassVar[str] = "session.resumed"
    V: ClassVar[int] = 1
    turn: int


@dataclass(frozen=True, slots=True)
class LimitsRaised:
    """The limits that hold from here on."""

    TYPE: ClassVar[str] = "limits.raised"
    V: ClassVar[int] = 1
    limits: Limits


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Always the last event of a turn; there is exactly one."""

    TYPE: ClassVar[str] = "turn.ended"
    V: ClassVar[int] = 1
    status: Status
    stop_reason: StopReason
    result: Result
    usage: Usage
    error: Fault | None = None


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """No further turn will start."""

    TYPE: ClassVar[str] = "session.closed"
    V: ClassVar[int] = 1
    reason: str = field(default="requested")


Body = (
    SessionCreated
    | TurnStarted
    | PhaseEntered
    | ModelRequested
    | ModelAnswered
    | ModelFailed
    | ToolIntended
    | ToolAttempted
    | ToolFinished
    | StepFinished
    | GuardTripped
    | MessageReceived
    | VerificationAsked
    | VerificationDecided
    | TimerFired
    | SessionClaimed
    | SessionInterrupted
    | SessionResumed
    | LimitsRaised
    | TurnEnded
    | SessionClosed
)

BODIES: Final[dict[str, type[Body]]] = {body.TYPE: body for body in get_args(Body)}
"""Every event type of the journal and its class."""


@dataclass(frozen=True, slots=True)
class Event:
    """A body with its place: `at_us` in microseconds UTC; turn, step and phase after it."""

    seq: int
    turn: int
    step: int
    phase: Phase | None
    at_us: int
    body: Body


__all__ = [
    "BODIES",
    "NO_USAGE",
    "Body",
    "CallMade",
    "EffectClass",
    "Event",
    "Finish",
    "GuardTripped",
    "Limits",
    "LimitsRaised",
    "MessageReceived",
    "ModelAnswered",
    "ModelFailed",
    "ModelRef",
    "ModelRequested",
    "Outcome",
    "PhaseEntered",
    "Policy",
    "PromptRef",
    "Purpose",
    "Result",
    "SessionClaimed",
    "SessionClosed",
    "SessionCreated",
    "SessionInterrupted",
    "SessionResumed",
    "StepFinished",
    "TimerFired",
    "ToolAttempted",
    "ToolFinished",
    "ToolIntended",
    "ToolRef",
    "Trace",
    "TurnEnded",
    "TurnStarted",
    "Usage",
    "VerificationAsked",
    "VerificationDecided",
]
