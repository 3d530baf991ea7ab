"""What can go wrong, as values, and the one place that says what follows (TOOL-8, TOOL-9).

    Fault ── kind (closed set) ── message (what happened) ── hint (what can be done)
      └─ classify → SECURITY | UNRECOVERABLE | TRANSIENT | SEMANTIC
           └─ respond → Stop | Retry | ToModel

Tools and providers only raise or return faults; none of them decides about retries.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never


class FaultKind(StrEnum):
    """The closed set of kinds; the first twelve may reach the model (TOOL-8)."""

    INVALID_ARGS = "invalid_args"
    NOT_FOUND = "not_found"
    EMPTY_RESULT = "empty_result"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    PERMISSION = "permission"
    NEEDS_APPROVAL = "needs_approval"
    CONFLICT = "conflict"
    UNKNOWN_OUTCOME = "unknown_outcome"
    UNREADABLE_CALL = "unreadable_call"
    INTERNAL = "internal"
    SECURITY = "security"
    REFUSED_REQUEST = "refused_request"
    CONTEXT_TOO_LONG = "context_too_long"
    EMPTY_ANSWER = "empty_answer"


class Hint(StrEnum):
    """What the model can do about a fault."""

    FIX_ARGUMENTS = "fix_arguments"
    SMALLER_SCOPE = "suggest_smaller_scope"
    TRY_LATER = "try_later"
    OTHER_TOOL = "use_other_tool"
    ASK_USER = "ask_user"
    ESCALATE = "escalate_to_user"


class FaultClass(StrEnum):
    """What a kind of fault means for the turn (TOOL-9)."""

    SECURITY = "security"
    UNRECOVERABLE = "unrecoverable"
    TRANSIENT = "transient"
    SEMANTIC = "semantic"


_HINTS: Final[dict[FaultKind, Hint]] = {
    FaultKind.INVALID_ARGS: Hint.FIX_ARGUMENTS,
    FaultKind.NOT_FOUND: Hint.OTHER_TOOL,
    FaultKind.EMPTY_RESULT: Hint.FIX_ARGUMENTS,
    FaultKind.TIMEOUT: Hint.SMALLER_SCOPE,
    FaultKind.RATE_LIMITED: Hint.TRY_LATER,
    FaultKind.UNAVAILABLE: Hint.TRY_LATER,
    FaultKind.PERMISSION: Hint.ESCALATE,
    FaultKind.NEEDS_APPROVAL: Hint.ESCALATE,
    FaultKind.CONFLICT: Hint.OTHER_TOOL,
    FaultKind.UNKNOWN_OUTCOME: Hint.ASK_USER,
    FaultKind.UNREADABLE_CALL: Hint.FIX_ARGUMENTS,
    FaultKind.INTERNAL: Hint.OTHER_TOOL,
    FaultKind.SECURITY: Hint.ESCALATE,
    FaultKind.REFUSED_REQUEST: Hint.ESCALATE,
    FaultKind.CONTEXT_TOO_LONG: Hint.SMALLER_SCOPE,
    FaultKind.EMPTY_ANSWER: Hint.TRY_LATER,
}

_CLASSES: Final[dict[FaultKind, FaultClass]] = {
    FaultKind.SECURITY: FaultClass.SECURITY,
    FaultKind.REFUSED_REQUEST: FaultClass.UNRECOVERABLE,
    FaultKind.TIMEOUT: FaultClass.TRANSIENT,
    FaultKind.RATE_LIMITED: FaultClass.TRANSIENT,
    FaultKind.UNAVAILABLE: FaultClass.TRANSIENT,
    FaultKind.EMPTY_ANSWER: FaultClass.TRANSIENT,
}

FATAL: Final = frozenset({FaultClass.SECURITY, FaultClass.UNRECOVERABLE})
"""The classes of faults which end a turn."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong.

    Only a call that provably did not reach the other side may be repeated when its effect is
    `once`; `sent` is what says so.
    """

    kind: FaultKind
    """What kind of fault it is."""
    message: str
    """What happened, in words that the model or a person can use."""
    retry_hint: Hint
    """What can be done about it."""
    sent: bool = True
    """Whether the request may have reached the other side."""
    retry_after_us: int | None = None
    """How long the other side asked to wait, in microseconds; null: it did not say."""

    @classmethod
    def of(
        cls,
        kind: FaultKind,
        message: str,
        *,
        hint: Hint | None = None,
        sent: bool = True,
        retry_after_us: int | None = None,
    ) -> "Fault":
        """Return a fault with the kind's usual hint unless another is given."""
        return cls(kind, message, hint or _HINTS[kind], sent, retry_after_us)


def classify(fault: Fault) -> FaultClass:
    """Return the class of a fault; whatever is not listed is for the model to handle."""
    return _CLASSES.get(fault.kind, FaultClass.SEMANTIC)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently transient faults are tried again; times in microseconds."""

    max_attempts: int = 3
    base_us: int = 500_000
    cap_us: int = 8_000_000
    longest_wait_us: int = 60_000_000


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after this long."""

    after_us: int


@dataclass(frozen=True, slots=True)
class ToModel:
    """Give the fault to the model as a result."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the turn: the class says whether as a security matter or as unrecoverable."""

    fault_class: FaultClass


Response = Retry | ToModel | Stop


def backoff_us(attempt: int, policy: RetryPolicy, jitter: float) -> int:
    """Return how long to wait after an attempt (1 is the first)."""
    wait = min(policy.cap_us, policy.base_us << (attempt - 1))
    return int(wait * (0.5 + jitter / 2))


def respond(fault: Fault, attempt: int, policy: RetryPolicy, jitter: float) -> Response:
    """Say what follows a fault of the given attempt (1 is the first).

    The wait doubles from `base_us` and is spread over its upper half by `jitter` in [0, 1). What
    the other side asked for (`Retry-After`) is a lower bound, never shortened; when it asks for
    more than `longest_wait_us` the attempt counts as the last.
    """
    match classify(fault):
        case FaultClass.SECURITY | FaultClass.UNRECOVERABLE as fatal:
            return Stop(fatal)
        case FaultClass.SEMANTIC:
            return ToModel()
        case FaultClass.TRANSIENT:
            if attempt >= policy.max_attempts:
                return ToModel()
            wait = backoff_us(attempt, policy, jitter)
            if fault.retry_after_us is not None:
                wait = max(wait, fault.retry_after_us)
            return Retry(wait) if wait <= policy.longest_wait_us else ToModel()
        case fault_class:
            assert_never(fault_class)
