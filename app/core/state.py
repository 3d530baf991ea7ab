"""The state of a session: what the fold of its journal amounts to. Everything here is frozen.

`STATE_V` names this shape; snapshots and hot states of another shape are dropped, not read.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.events import (
    NO_USAGE,
    CallMade,
    EffectClass,
    Limits,
    ModelRef,
    Outcome,
    Policy,
    PromptRef,
    Purpose,
    Result,
    SessionCreated,
    ToolFinished,
    ToolRef,
    Trace,
    Usage,
)
from app.core.faults import Fault
from app.core.lifecycle import PendingKind, Phase, Status, StopReason
from app.core.messages import Message

STATE_V: Final = 3
ACTION_MEMORY: Final = 24


class CallStage(StrEnum):
    """How far a call of the current step has come."""

    PROPOSED = "proposed"
    INTENDED = "intended"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A person was asked whether the call may be made."""

    approval_id: str
    requested_at_us: int
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody here knows whether a `once` call happened.

    `lost`: its owner was lost while it was in flight, so that the other side may still be at it
    until the lease and the call's own timeout are `over`. `check_at_us` is when the tool itself is
    asked (again); None: it is not.
    """

    since_us: int
    lost: bool = True
    over: bool = False
    checks: int = 0
    check_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class OpenCall:
    """One call of the current step. `note` is what the model is told beside its result."""

    call: CallMade
    stage: CallStage = CallStage.PROPOSED
    intended_seq: int = 0
    intended_at_us: int = 0
    attempt: int = 1
    not_before_us: int = 0
    doubt: Doubt | None = None
    approval: OpenApproval | None = None
    approved: bool = False
    note: str | None = None
    note_tokens: int = 0
    result: ToolFinished | None = None

    @property
    def in_doubt(self) -> bool:
        """Return whether only a person (or the tool) can say if this call happened."""
        return self.stage is CallStage.INTENDED and self.doubt is not None

    @property
    def with_client(self) -> bool:
        """Return whether the caller is carrying it out."""
        return self.stage is CallStage.INTENDED and self.call.client

    @property
    def unapproved(self) -> bool:
        """Return whether a person was asked for approval and has not decided."""
        return self.stage is CallStage.PROPOSED and self.approval is not None and not self.approved


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A model call that is owed an answer."""

    seq: int
    at_us: int
    purpose: Purpose
    attempt: int = 1
    not_before_us: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """A finished call as the guards remember it."""

    call_id: str
    tool: str
    digest: str
    loop_digest: str
    outcome: Outcome
    result_digest: str
    notable: bool
    empty: bool
    polling: bool
    executed: bool
    effect: EffectClass
    content: str
    tokens: int
    may_repeat: bool


@dataclass(frozen=True, slots=True)
class Fact:
    """One confirmed result, a line for the digest of a turn that ends without an answer."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class QueuedText:
    """A user message that waits for its turn, or (`steer`) for the next step of this one."""

    text: str
    tokens: int
    policy: Policy = Policy.ENQUEUE


@dataclass(frozen=True, slots=True)
class Pending:
    """What a waiting session waits for."""

    kind: PendingKind
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last turn ended."""

    status: Status
    reason: StopReason
    result: Result
    error: Fault | None = None
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A session after its first `seq` events. Fields of the turn are reset by `turn.started`."""

    created: SessionCreated
    limits: Limits
    seq: int = 0
    at_us: int = 0
    turn: int = 0
    step: int = 0
    phase: Phase | None = None
    phase_seq: int = 0
    phase_at_us: int = 0
    history: tuple[Message, ...] = ()
    context_tokens: int = 0
    usage: Usage = NO_USAGE
    queue: tuple[QueuedText, ...] = ()
    resuming: int | None = None
    closed: bool = False
    epoch: int = 0
    lease_us: int = 0
    forked_turn: int = 0
    # of the turn
    trace: Trace | None = None
    turn_at_us: int = 0
    turn_link: str | None = None
    tools: tuple[ToolRef, ...] = ()
    tools_tokens: int = 0
    active_us: int = 0
    active_from_us: int | None = None
    spent: Usage = NO_USAGE
    errors_running: int = 0
    actions: tuple[Action, ...] = ()
    once_done: tuple[Action, ...] = ()
    withdrawn: tuple[str, ...] = ()
    nudges: tuple[str, ...] = ()
    request: OpenRequest | None = None
    calls: tuple[OpenCall, ...] = ()
    stopping: StopReason | None = None
    pending: Pending | None = None
    ended: Ended | None = None
    best: str = ""
    best_tokens: int = 0
    facts: tuple[Fact, ...] = ()

    @property
    def session_id(self) -> str:
        """Return the session's id."""
        return self.created.session_id

    @property
    def model(self) -> ModelRef:
        """Return the model the session is pinned to."""
        return self.created.model

    @property
    def prompt(self) -> PromptRef:
        """Return the prompt version the session is pinned to."""
        return self.created.prompt

    @property
    def between_turns(self) -> bool:
        """Return whether no turn is open."""
        return self.ended is not None or self.turn == 0

    @property
    def barred(self) -> bool:
        """Return whether no turn can follow: closed, or ended as a security matter."""
        return self.closed or (self.ended is not None and self.ended.reason is StopReason.SECURITY)

    @property
    def offered(self) -> tuple[ToolRef, ...]:
        """Return the tools the model may be offered now."""
        return tuple(ref for ref in self.tools if ref.name not in self.withdrawn)
