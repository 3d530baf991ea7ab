"""The journal's events: frozen values, one class a type, each with its schema version.

An `Event` is a body with its place (seq, turn, step, phase, time). The shape of a body is part of
the HTTP contract (docs/events.md is generated from here); a change of shape raises `V` and brings
an upcaster in `app.core.upcasters`, so that every journal ever written can be folded.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, get_args

from app.core.asking_events import (
    ApprovalDecided,
    ApprovalRequested,
    ToolChecked,
    VerificationAsked,
    VerificationDecided,
)
from app.core.faults import Fault
from app.core.lifecycle import Phase, Status, StopReason
from app.core.step_events import (
    GuardTripped,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    SecurityFlagged,
    SessionInterrupted,
    StepFinished,
    ToolAttempted,
    ToolFinished,
    ToolIntended,
)
from app.core.values import (
    NO_USAGE,
    CallMade,
    Choice,
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
    """A session exists; what it is pinned to."""

    TYPE: ClassVar[str] = "session.created"
    V: ClassVar[int] = 1
    session_id: str
    """The session's id, `ses_…`."""
    agent: str
    """The agent's name."""
    agent_version: int
    """The version of the agent that the session keeps."""
    mode: str
    """How the agent works: `react`."""
    model: ModelRef
    """The model of every call of this session."""
    prompt: PromptRef
    """The prompt version of every call of this session."""
    limits: Limits
    """The bounds of each turn, until `limits.raised`."""
    tools: tuple[str, ...] | None = None
    """The names the session may use; null: every tool enabled when a turn starts."""
    parent: str | None = None
    """The session this one was forked from; null when it was not."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins with the user's text; tools are frozen here, and the trace gets its root."""

    TYPE: ClassVar[str] = "turn.started"
    V: ClassVar[int] = 1
    text: str
    """What the user said; of a turn that goes on, what the runtime tells the model instead."""
    tokens: int
    """The size of `text` in tokens of the model."""
    trace: Trace
    """The trace of this turn and the span under which all others of it hang."""
    tools: tuple[ToolRef, ...] = ()
    """The tool versions that hold for the whole turn."""
    tools_tokens: int = 0
    """The size of their definitions, in tokens: part of every request of the turn."""
    continues: int | None = None
    """The number of the turn that goes on here after a resume; null for a new one."""
    link: str | None = None
    """The W3C traceparent of the creating request, or of the turn that goes on; or null."""


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """The machine moved; on the wire the fields are `from` and `to`."""

    TYPE: ClassVar[str] = "phase.entered"
    V: ClassVar[int] = 1
    source: Phase | None
    """The phase before; null at the start of a turn."""
    target: Phase
    """The phase now."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A user message after the first arrived."""

    TYPE: ClassVar[str] = "message.received"
    V: ClassVar[int] = 2
    text: str
    """What the user said."""
    tokens: int
    """Its size in tokens of the model."""
    policy: Policy = Policy.REJECT
    """What the sender wanted to happen if a turn was running."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of the session fired."""

    TYPE: ClassVar[str] = "timer.fired"
    V: ClassVar[int] = 1
    timer: str
    """`total_timeout`; `verification`: a lost call's time for an answer is over; `approval`."""


@dataclass(frozen=True, slots=True)
class SessionClaimed:
    """A worker took the session over under a new epoch (the fencing token)."""

    TYPE: ClassVar[str] = "session.claimed"
    V: ClassVar[int] = 1
    worker: str
    """The worker's name."""
    epoch: int
    """How often the session was claimed; writes of an older epoch are refused."""
    lease_us: int
    """For how long an owner is believed without news, in microseconds."""


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """A user asked for a stopped or failed turn to go on."""

    TYPE: ClassVar[str] = "session.resumed"
    V: ClassVar[int] = 1
    turn: int
    """The number of the turn that is to go on, in a turn of its own."""


@dataclass(frozen=True, slots=True)
class SessionForked:
    """Everything before this event was taken from another session; from here on this one goes on.

    Calls that were open there are closed here. In the turn that comes next, calls that change the
    world (`once`) are put to a person: they may have been made already, by the other session.
    """

    TYPE: ClassVar[str] = "session.forked"
    V: ClassVar[int] = 1
    parent: str
    """The session it was forked from."""
    at_seq: int
    """The last event that was taken."""
    turn: int
    """The turn in which calls that change the world are put to a person."""
    model: str | None = None
    """The model there, where it is another one here; else null."""
    prompt: str | None = None
    """The prompt there as `name@version`, where it is another one here; else null."""


@dataclass(frozen=True, slots=True)
class LimitsRaised:
    """The limits that hold from here on."""

    TYPE: ClassVar[str] = "limits.raised"
    V: ClassVar[int] = 1
    limits: Limits
    """All limits, also those that stay as they were."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Always the last event of a turn; there is exactly one."""

    TYPE: ClassVar[str] = "turn.ended"
    V: ClassVar[int] = 1
    status: Status
    """What the session is now: `completed`, `stopped`, `failed` or `cancelled`."""
    stop_reason: StopReason
    """Why the turn ended."""
    result: Result
    """The answer, or the best there was."""
    usage: Usage
    """What the turn cost, turns that it continues included."""
    error: Fault | None = None
    """The fault that ended it; null when none did."""


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """No further turn will start."""

    TYPE: ClassVar[str] = "session.closed"
    V: ClassVar[int] = 1
    reason: str = "requested"
    """Why: `requested`."""


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
    | SecurityFlagged
    | MessageReceived
    | ApprovalRequested
    | ApprovalDecided
    | VerificationAsked
    | VerificationDecided
    | ToolChecked
    | TimerFired
    | SessionClaimed
    | SessionInterrupted
    | SessionResumed
    | SessionForked
    | LimitsRaised
    | TurnEnded
    | SessionClosed
)

BODIES: Final[dict[str, type[Body]]] = {body.TYPE: body for body in get_args(Body)}
"""Every event type of the journal and its class."""


@dataclass(frozen=True, slots=True)
class Event:
    """A body with its place: turn, step and phase after it."""

    seq: int
    """Its number in the session, from 1 without gaps."""
    turn: int
    """The number of the turn, from 1; 0 before the first."""
    step: int
    """The step within the turn, from 1; 0 before the first."""
    phase: Phase | None
    """The phase after this event; null outside a turn's phases."""
    at_us: int
    """When it was written, in microseconds since 1970 UTC."""
    body: Body
    """What happened."""


__all__ = [
    "BODIES",
    "NO_USAGE",
    "ApprovalDecided",
    "ApprovalRequested",
    "Body",
    "CallMade",
    "Choice",
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
    "SecurityFlagged",
    "SessionClaimed",
    "SessionClosed",
    "SessionCreated",
    "SessionForked",
    "SessionInterrupted",
    "SessionResumed",
    "StepFinished",
    "TimerFired",
    "ToolAttempted",
    "ToolChecked",
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
