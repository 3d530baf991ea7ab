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


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one turn; times in seconds, money in the currency of the price table."""

    max_steps: int = 12
    token_budget: int = 100_000
    max_cost: float | None = None
    max_consecutive_errors: int = 3
    loop_window: int = 6
    loop_threshold: int = 3
    max_repeat: int = 2
    total_timeout_s: float = 90.0
    tool_timeout_s: float = 15.0
    max_tool_calls_per_step: int = 5


@dataclass(frozen=True, slots=True)
class ModelRef:
    """The model a session uses, as far as the core knows it. Prices are per million tokens."""

    name: str
    context_window: int = 128_000
    encoding: str = "o200k_base"
    price_input: float | None = None
    price_cached: float | None = None
    price_output: float | None = None


@dataclass(frozen=True, slots=True)
class PromptRef:
    """One immutable prompt version: its name, number, content hash and token count."""

    name: str
    version: int
    sha256: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ToolRef:
    """One immutable tool version."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, calls and money spent; `estimated` when an endpoint reported none."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    cost: float = 0.0
    estimated: bool = False

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
    span_id: str
    sampled: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A turn's result, the best so far also for a turn that a guard stopped (API-9)."""

    text: str = ""
    data: Json = None
    complete: bool | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class CallMade:
    """One tool call as the model asked for it, read and checked by the shell before deciding.

    `raw` is what the model wrote; `arguments` what it means after parsing, validation and
    defaults, or None when `fault` says why it cannot run; `replay` is what the history repeats to
    the endpoint where `raw` itself is not a JSON object. `loop_digest` leaves out what the tool
    names in `loop_ignore`. The rest is the tool's own policy, frozen into the log with the call.
    """

    call_id: str
    wire_id: str
    name: str
    raw: str
    arguments: dict[str, object] | None
    fault: Fault | None = None
    replay: str | None = None
    digest: str = ""
    loop_digest: str = ""
    version: int = 0
    effect: EffectClass = EffectClass.ONCE
    timeout_s: float = 15.0
    max_attempts: int = 3
    polling: bool = False
    serial_group: str | None = None
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The built-in final answer (LOOP-11): not a tool call, though the model calls it like one."""

    text: str
    complete: bool | None = None
    confidence: float | None = None
    missing: str | None = None
