"""What can happen to a session, as values: the answers to effects, and what the inbox brings.

Every input carries the time at which it happened; the core has no clock of its own.
"""

from dataclasses import dataclass

from app.core.canonical import Json
from app.core.events import NO_USAGE, Choice, Limits, ModelAnswered, Policy, ToolRef, Trace, Usage
from app.core.faults import Fault


@dataclass(frozen=True, slots=True)
class Claimed:
    """This worker owns the session; `lease_us` is how long an owner is believed without news."""

    at_us: int
    worker: str
    epoch: int
    lease_us: int


@dataclass(frozen=True, slots=True)
class TurnPrepared:
    """Answer to `PrepareTurn`. `note` is what the model is told when a stopped turn goes on."""

    at_us: int
    trace: Trace
    tools: tuple[ToolRef, ...]
    tools_tokens: int
    note: str
    note_tokens: int


@dataclass(frozen=True, slots=True)
class ModelReturned:
    """Answer to `CallModel`: read, its calls checked."""

    at_us: int
    key: str
    answer: ModelAnswered
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelFaulted:
    """The attempt failed; `jitter` in [0, 1) spreads the wait before the next."""

    at_us: int
    key: str
    fault: Fault
    jitter: float
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """Answer to `CallTool`: the output, and the text and tokens the model will be given."""

    at_us: int
    key: str
    call_id: str
    output: Json
    content: str | None
    tokens: int
    digest: str
    duration_ms: float
    empty: bool = False
    notable: bool = False


@dataclass(frozen=True, slots=True)
class ToolFaulted:
    """The attempt failed; whether it may have reached the tool is in `fault.sent`.

    `flagged` is the guard that stopped it, where that looks like an attack.
    """

    at_us: int
    key: str
    call_id: str
    fault: Fault
    tokens: int
    duration_ms: float
    jitter: float
    flagged: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A user message from the inbox."""

    at_us: int
    text: str
    tokens: int
    policy: Policy


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """A user wants a stopped or failed turn to go on, with these limits."""

    at_us: int
    limits: Limits | None


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A user wants the turn ended now."""

    at_us: int


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """A user wants no further turn."""

    at_us: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A person said whether an uncertain call happened; output and tokens when it is known.

    `content` is what the model reads where that is less than the output, here and below.
    """

    at_us: int
    call_id: str
    happened: bool
    output: Json
    tokens: int
    content: str | None = None


@dataclass(frozen=True, slots=True)
class StatusChecked:
    """Answer to `CheckStatus`: what the tool says became of a call; None: it does not say."""

    at_us: int
    key: str
    call_id: str
    happened: bool | None
    output: Json
    tokens: int
    fault: Fault | None
    jitter: float
    content: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalGiven:
    """A person decided on a call. Changed arguments are checked, hashed and described already."""

    at_us: int
    approval_id: str
    decision: Choice
    message: str | None = None
    arguments: dict[str, object] | None = None
    digest: str = ""
    loop_digest: str = ""
    note: str | None = None
    note_tokens: int = 0
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """The caller carried a call out, or failed to (`error`); `content` as `ToolReturned` has it."""

    at_us: int
    call_id: str
    output: Json
    error: str | None
    tokens: int
    digest: str
    empty: bool = False
    notable: bool = False
    content: str | None = None


@dataclass(frozen=True, slots=True)
class TimerRang:
    """A timer reached its time: `total_timeout`, `verification` or `approval`."""

    at_us: int
    timer: str


Input = (
    Claimed
    | TurnPrepared
    | ModelReturned
    | ModelFaulted
    | ToolReturned
    | ToolFaulted
    | Told
    | ResumeAsked
    | CancelAsked
    | CloseAsked
    | Verified
    | StatusChecked
    | ApprovalGiven
    | ClientAnswered
    | TimerRang
)
