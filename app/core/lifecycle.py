"""Phases, statuses, stop reasons, and the tables between them. No other module lists these.

The diagram in docs/architecture.md is drawn from `TRANSITIONS`.
"""

from enum import StrEnum
from typing import Final, assert_never


class Phase(StrEnum):
    """Where the machine stands inside a turn."""

    OBSERVE = "OBSERVE"
    THINK = "THINK"
    ACT = "ACT"
    REFLECT = "REFLECT"
    WAITING = "WAITING"
    DONE = "DONE"


TRANSITIONS: Final[dict[Phase | None, frozenset[Phase]]] = {
    None: frozenset({Phase.OBSERVE, Phase.DONE}),
    Phase.OBSERVE: frozenset({Phase.THINK, Phase.DONE}),
    Phase.THINK: frozenset({Phase.ACT, Phase.REFLECT, Phase.DONE}),
    Phase.ACT: frozenset({Phase.REFLECT, Phase.WAITING, Phase.DONE}),
    Phase.REFLECT: frozenset({Phase.OBSERVE, Phase.WAITING, Phase.DONE}),
    Phase.WAITING: frozenset({Phase.OBSERVE, Phase.ACT, Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""From each phase, those which may follow; None stands before a turn's first phase."""


class StopReason(StrEnum):
    """Why a turn ended: one reason from a closed list (LOOP-10)."""

    FINAL_ANSWER = "final_answer"
    MAX_STEPS = "max_steps"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - the name of a limit
    MAX_COST = "max_cost"
    CONSECUTIVE_ERRORS = "consecutive_errors"
    LOOP_DETECTED = "loop_detected"
    REPEATED_ACTION = "repeated_action"
    REPEATED_RESULT = "repeated_result"
    TOTAL_TIMEOUT = "total_timeout"
    TOOL_UNAVAILABLE = "tool_unavailable"
    CONTEXT_OVERFLOW = "context_overflow"
    OUTPUT_INVALID = "output_invalid"
    STEP_FAILED = "step_failed"
    REPLAN_LIMIT = "replan_limit"
    MODEL_UNAVAILABLE = "model_unavailable"
    REFUSED = "refused"
    EXPIRED = "expired"
    ESCALATED = "escalated"
    UNRECOVERABLE_ERROR = "unrecoverable_error"
    SECURITY = "security"
    CANCELLED = "cancelled"


class Status(StrEnum):
    """The status of a session, as users see it."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CLOSED = "closed"


class PendingKind(StrEnum):
    """What a waiting session waits for."""

    INPUT = "input"
    APPROVAL = "approval"
    CLIENT_TOOLS = "client_tools"
    VERIFICATION = "verification"
    ESCALATION = "escalation"


ALIVE: Final = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING})
"""Statuses in which a turn is open."""

_FAILED: Final = frozenset(
    {StopReason.UNRECOVERABLE_ERROR, StopReason.MODEL_UNAVAILABLE, StopReason.SECURITY}
)

DIGEST_ONLY: Final = frozenset(
    {
        StopReason.TOTAL_TIMEOUT,
        StopReason.MAX_COST,
        StopReason.SECURITY,
        StopReason.CANCELLED,
        StopReason.UNRECOVERABLE_ERROR,
        StopReason.MODEL_UNAVAILABLE,
        StopReason.OUTPUT_INVALID,
    }
)
"""Stops at which no closing call is bought: the result is a digest of what is there (API-9)."""


def status_of(reason: StopReason) -> Status:
    """Return the status in which a turn that ended for this reason leaves its session."""
    if reason is StopReason.FINAL_ANSWER:
        return Status.COMPLETED
    if reason is StopReason.CANCELLED:
        return Status.CANCELLED
    return Status.FAILED if reason in _FAILED else Status.STOPPED


class Verb(StrEnum):
    """What a user can ask of a session that exists."""

    MESSAGE = "messages"
    RESUME = "resume"
    CANCEL = "cancel"
    CLOSE = "close"


class Ruling(StrEnum):
    """What the table of status and verb answers."""

    ACCEPT = "accept"
    BY_POLICY = "by_policy"
    ANSWER = "answer"
    NEXT_TURN = "next_turn"
    ONLY_WITH_LIMITS = "only_with_limits"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"


_ANSWERABLE: Final = frozenset({PendingKind.INPUT, PendingKind.ESCALATION})
_RESUMABLE: Final = frozenset({StopReason.UNRECOVERABLE_ERROR, StopReason.MODEL_UNAVAILABLE})


def rule(
    verb: Verb,
    status: Status,
    *,
    pending: PendingKind | None = None,
    reason: StopReason | None = None,
    owner_alive: bool = True,
) -> Ruling:
    """Return what a verb does to a session in this status: the table of the HTTP contract."""
    match verb:
        case Verb.MESSAGE:
            return _rule_message(status, pending, reason)
        case Verb.RESUME:
            return _rule_resume(status, reason, owner_alive=owner_alive)
        case Verb.CANCEL:
            return Ruling.ACCEPT if status in ALIVE else Ruling.UNCHANGED
        case Verb.CLOSE:
            return Ruling.UNCHANGED if status is Status.CLOSED else Ruling.ACCEPT
        case _:
            assert_never(verb)


def _rule_message(status: Status, pending: PendingKind | None, reason: StopReason | None) -> Ruling:
    if status is Status.CLOSED or reason is StopReason.SECURITY:
        return Ruling.CONFLICT
    if status not in ALIVE:
        return Ruling.NEXT_TURN
    if status is Status.WAITING and pending in _ANSWERABLE:
        return Ruling.ANSWER
    return Ruling.BY_POLICY


def _rule_resume(status: Status, reason: StopReason | None, *, owner_alive: bool) -> Ruling:
    if status is Status.RUNNING and not owner_alive:
        return Ruling.ACCEPT
    if status is Status.STOPPED:
        return Ruling.ONLY_WITH_LIMITS
    if status is Status.FAILED and reason in _RESUMABLE:
        return Ruling.ACCEPT
    return Ruling.CONFLICT
