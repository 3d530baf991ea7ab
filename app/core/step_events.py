"""What happens inside a step, as bodies of events: model calls, tool calls, guards.

They are exported by `app.core.events`, which says what an event is.
"""

from dataclasses import dataclass
from typing import ClassVar

from app.core.canonical import Json
from app.core.faults import Fault
from app.core.lifecycle import StopReason
from app.core.values import (
    NO_USAGE,
    CallMade,
    EffectClass,
    Finish,
    Outcome,
    PromptRef,
    Purpose,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ModelRequested:
    """A model call is about to be bought: its size and ingredients, never the messages."""

    TYPE: ClassVar[str] = "model.requested"
    V: ClassVar[int] = 1
    model: str
    """The name of the model that is asked."""
    purpose: Purpose
    """Why it is asked."""
    sha256: str
    """A hash of the messages in hex: equal for equal requests."""
    messages: int
    """How many messages are sent, the system prompt counted."""
    input_tokens: int
    """The expected size of the request, in tokens."""
    tools: tuple[str, ...]
    """The names of the tools offered; none on a closing call."""
    prompt: PromptRef
    """The version of the system prompt."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model's answer, whole."""

    TYPE: ClassVar[str] = "model.answered"
    V: ClassVar[int] = 2
    text: str
    """What the model said, without its reasoning; may be empty beside calls."""
    tool_calls: tuple[CallMade, ...]
    """The calls it asked for, in its order."""
    usage: Usage
    """What this call cost."""
    finish_reason: str
    """Why the model ended: `stop`, `tool_calls`, `length`, or the endpoint's own word."""
    tokens: int
    """The size of text and calls as counted here, in tokens."""
    model: str = ""
    """The model that answered, as the endpoint names it; empty when it was not known."""
    scratchpad: str | None = None
    """The model's reasoning; null when it sent none."""
    finish: Finish | None = None
    """The final answer where it was given by `finish`; else null."""
    attempt: int = 1
    """The attempt that succeeded; 1 is the first."""
    ttft_ms: float | None = None
    """Milliseconds to the first piece of a streamed answer; null when it came whole."""
    dropped: tuple[str, ...] = ()
    """Optional request fields which the endpoint refused, left out from now on."""


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """One attempt at a model call failed."""

    TYPE: ClassVar[str] = "model.failed"
    V: ClassVar[int] = 1
    error: Fault
    """What went wrong."""
    attempt: int
    """The attempt that failed; 1 is the first."""
    retry_at_us: int | None = None
    """When the next may be made, in microseconds UTC; null when there is none."""
    usage: Usage = NO_USAGE
    """What the failed attempt cost, as far as known."""


@dataclass(frozen=True, slots=True)
class ToolIntended:
    """A call is about to be made: written before it is sent (the ledger's intent)."""

    TYPE: ClassVar[str] = "tool.intended"
    V: ClassVar[int] = 1
    call_id: str
    """The call's id, unique in the session: `t<turn>_c<step>_<n>`."""
    name: str
    """The tool's name."""
    arguments: dict[str, object]
    """What the tool is given: validated, defaults applied."""
    effect: EffectClass
    """What the call may do to the world, and so whether it may be repeated."""
    key: str
    """The idempotency key which every attempt of this call carries."""


@dataclass(frozen=True, slots=True)
class ToolAttempted:
    """A further attempt at the same call follows; written from the second attempt on."""

    TYPE: ClassVar[str] = "tool.attempted"
    V: ClassVar[int] = 1
    call_id: str
    """The call's id."""
    attempt: int
    """The number of the attempt that follows, 2 or more."""
    error: Fault
    """Why the attempt before it failed."""
    retry_at_us: int
    """When it may be made, in microseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call is closed (the ledger's result)."""

    TYPE: ClassVar[str] = "tool.finished"
    V: ClassVar[int] = 1
    call_id: str
    """The call's id."""
    name: str
    """The tool's name; of an unknown tool, what the model wrote."""
    outcome: Outcome
    """How the call ended."""
    output: Json = None
    """What the tool returned; null when there is nothing or an error."""
    error: Fault | None = None
    """Why there is no output; null when the call succeeded."""
    content: str | None = None
    """What the model reads, where that is not simply the output or the error; else null."""
    tokens: int = 0
    """What reading the result costs the model, in tokens."""
    attempts: int = 1
    """How many attempts were made."""
    duration_ms: float = 0.0
    """How long the last attempt took, in milliseconds; 0 for a call never sent."""
    executed: bool = True
    """False for a call that was refused or withheld and so never sent."""
    digest: str = ""
    """A hash of the output, equal for equal ones; empty when there is none."""
    empty: bool = False
    """Whether the output says nothing: null, an empty text, list or object."""
    notable: bool = False
    """Whether the output is long enough for two equal ones to mean a loop (LOOP-7)."""
    may_repeat: bool = False
    """Whether the same call again is no repetition: it was malformed or did not happen."""


@dataclass(frozen=True, slots=True)
class SecurityFlagged:
    """A guard stopped something that looks like an attack; what follows from it stands beside it.

    Today there is one such guard: `egress`, when the address of a tool (or one that it redirects
    to) turns out, as the call is made, to be one that tools may not reach.
    """

    TYPE: ClassVar[str] = "security.flagged"
    V: ClassVar[int] = 1
    guard: str
    """Which guard it was: `egress`."""
    message: str
    """What was found, in words."""
    call_id: str | None = None
    """The id of the call that it is about; null when it is about none."""
    name: str | None = None
    """The tool's name; null when it is about no call."""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step is over: how many of its calls succeeded, and the tokens spent in the turn so far."""

    TYPE: ClassVar[str] = "step.finished"
    V: ClassVar[int] = 1
    calls: int
    """How many calls the step had; 0 when the model only spoke."""
    succeeded: int
    """How many of them ended `ok`."""
    tokens: int
    """Input and output tokens spent in the turn so far."""


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """A guard acted: it ends the turn, or says something to the model."""

    TYPE: ClassVar[str] = "guard.tripped"
    V: ClassVar[int] = 1
    guard: str
    """Which guard: a stop reason, or the name of one that only warns."""
    detail: str
    """What it saw, in words."""
    stop_reason: StopReason | None = None
    """The reason with which it ends the turn; null when the turn goes on."""
    note: str | None = None
    """What the model is told about it; null when it is not told."""
    note_tokens: int = 0
    """The size of `note`, in tokens."""
    tool: str | None = None
    """The tool that is withdrawn for the rest of the turn; null when none is."""


@dataclass(frozen=True, slots=True)
class SessionInterrupted:
    """An owner was lost while these `once` calls were in flight: their outcome is in doubt."""

    TYPE: ClassVar[str] = "session.interrupted"
    V: ClassVar[int] = 1
    calls: tuple[str, ...]
    """The ids of the calls."""
