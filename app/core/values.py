"""The values inside events: limits, usage, references, calls. Frozen, and part of the contract."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.canonical import Json
from app.core.faults import Fault


class EffectClass(StrEnum):
    """What calling a tool does to the world (TOOL-10)."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class Outcome(StrEnum):
    """How a tool call ended."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Purpose(StrEnum):
    """Why a model call is bought."""

    STEP = "step"
    CLOSING = "closing"


class Policy(StrEnum):
    """What a message does when the session is busy."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class Choice(StrEnum):
    """What became of an approval that was asked for."""

    APPROVE = "approve"
    DENY = "deny"
    EXPIRED = "expired"


class ApprovalReason(StrEnum):
    """Why a person must agree to a call."""

    POLICY = "policy"
    """Its tool's registration says so."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """The same `once` call was made before and may have happened."""
    FORK = "fork"
    """It would be made in a fork, and the session forked from may have made it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one turn."""

    max_steps: int = 12
    """How many steps a turn may make."""
    token_budget: int = 100_000
    """Input and output tokens a turn may spend, the reserve for its answer counted."""
    max_cost: float | None = None
    """Money a turn may spend, in the currency of the price table; null: no ceiling."""
    max_consecutive_errors: int = 3
    """Steps running without a successful call after which a turn stops."""
    loop_window: int = 6
    """How many of the last calls are searched for a loop."""
    loop_threshold: int = 3
    """How often one action stands among them when it is a loop."""
    max_repeat: int = 2
    """How often running the same action may be asked for; one more stops the turn."""
    total_timeout_s: float = 90.0
    """Active time of a turn in seconds; waiting for a person does not count."""
    tool_timeout_s: float = 15.0
    """Seconds for one attempt at a call, where the tool names no time of its own."""
    max_tool_calls_per_step: int = 5
    """Calls that are made of one answer; those beyond get an error."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """The model a session uses, as far as the core knows it."""

    name: str
    """The model's name, as the endpoint knows it."""
    context_window: int = 128_000
    """Tokens that a request and its answer may have together."""
    encoding: str = "o200k_base"
    """The tokenizer that counts for this model."""
    price_input: float | None = None
    """Price of a million input tokens; null when it is not known."""
    price_cached: float | None = None
    """The same for those the endpoint had cached; null: as any input."""
    price_output: float | None = None
    """Price of a million output tokens; null when it is not known."""


@dataclass(frozen=True, slots=True)
class PromptRef:
    """One immutable prompt version."""

    name: str
    """The prompt's name."""
    version: int
    """The number of the version."""
    sha256: str
    """A hash of its text, in hex."""
    tokens: int
    """Its size in tokens of the model."""


@dataclass(frozen=True, slots=True)
class ToolRef:
    """One immutable tool version."""

    name: str
    """The tool's name."""
    version: int
    """The number of the version."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, calls and money spent."""

    input_tokens: int = 0
    """Tokens sent, cached ones included."""
    output_tokens: int = 0
    """Tokens of the answers, reasoning included."""
    cached_tokens: int = 0
    """Those of the input which the endpoint had cached."""
    model_calls: int = 0
    """Model calls made."""
    tool_calls: int = 0
    """Tool calls sent, each counted once however often it was tried."""
    cost: float = 0.0
    """Money, in the currency of the price table; 0 without prices."""
    estimated: bool = False
    """Whether some of it was counted here because an endpoint reported nothing."""

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of two usages."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.cost + other.cost,
            self.estimated or other.estimated,
        )

    @property
    def tokens(self) -> int:
        """Return what counts against the token budget."""
        return self.input_tokens + self.output_tokens


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a turn's spans hang: ids in hex as W3C Trace Context writes them."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """The turn's root span, 16 hex digits."""
    sampled: bool = True
    """Whether spans of this turn are exported."""


@dataclass(frozen=True, slots=True)
class Result:
    """A turn's result, the best so far also for a turn that a guard stopped (API-9)."""

    text: str = ""
    """The answer for the user; empty when there is nothing at all."""
    data: Json = None
    """The answer as JSON where a schema was asked for; else null."""
    complete: bool | None = None
    """Whether everything was done, as the model or a guard says; null: nobody said."""
    confidence: float | None = None
    """How sure the model is, 0 to 1; null when it did not say."""


@dataclass(frozen=True, slots=True)
class CallMade:
    """One tool call as the model asked for it, read and checked by the shell before deciding.

    The part after the digests is the tool's own policy, frozen into the log with the call.
    """

    call_id: str
    """The call's id, unique in the session: `t<turn>_c<step>_<n>`."""
    wire_id: str
    """The endpoint's own id of the call, or ours where it gave none that can be used."""
    name: str
    """The tool's name; of an unknown tool, what the model wrote."""
    raw: str
    """The arguments as the model wrote them."""
    arguments: dict[str, object] | None
    """What they mean: parsed, validated, defaults applied; null when it cannot run."""
    fault: Fault | None = None
    """Why the call cannot run; null when it can."""
    replay: str | None = None
    """What the endpoint is shown instead of `raw` where that is no JSON object; or null."""
    digest: str = ""
    """A hash of tool and arguments, equal for the same action; empty when unreadable."""
    loop_digest: str = ""
    """The same without the arguments which the tool names in `loop_ignore`."""
    version: int = 0
    """The tool version that is called; 0 for an unknown tool."""
    effect: EffectClass = EffectClass.ONCE
    """What the call may do to the world."""
    timeout_s: float = 15.0
    """Seconds for one attempt."""
    max_attempts: int = 3
    """How many attempts may be made, where repeating is safe."""
    polling: bool = False
    """Whether asking again and again is how the tool is meant to be used."""
    serial_group: str | None = None
    """Calls of one step in the same group run one after the other; null: in none."""
    depends_on: tuple[str, ...] = ()
    """Names of tools whose calls in the same step must be over first."""
    needs_approval: bool = False
    """Whether a person must allow the call before it is made (TOOL-17)."""
    approval_ttl_s: float = 86_400.0
    """For how many seconds a question for approval stands."""
    client: bool = False
    """Whether the caller carries it out and sends the result."""
    checkable: bool = False
    """Whether the tool can be asked later if the call took effect (`status_check`)."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The built-in final answer (LOOP-11): not a tool call, though the model calls it like one."""

    text: str
    """The answer for the user."""
    complete: bool | None = None
    """Whether everything that was asked for is done; null when it was not said."""
    confidence: float | None = None
    """How sure the model is, 0 to 1; null when it was not said."""
    missing: str | None = None
    """What is missing, in words; null when nothing is."""
