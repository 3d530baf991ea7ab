"""What crosses the ports of storage and live: rows and sealed bytes as frozen values.

Times are microseconds since the epoch, UTC, and come from Postgres's clock where a lease or a
wake-up depends on them.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.core.lifecycle import PendingKind, Status, StopReason


@dataclass(frozen=True, slots=True)
class SealedEvent:
    """One event as stored: a plain index beside the encrypted wire event and the chain's hash."""

    seq: int
    v: int
    type: str
    phase: str | None
    turn: int
    step: int
    at_us: int
    payload: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """The plain columns of a session row that an append rewrites; JSON texts for usage, limits.

    `status` is `active` or `waiting` while a turn is open, else a terminal status; `queued` and
    `running` are derived when the row is read.
    """

    status: str
    phase: str | None
    turn: int
    step: int
    stop_reason: str | None
    pending_kind: str | None
    usage: str
    limits: str
    trace_id: str
    tools: tuple[str, ...]
    ended_at_us: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of the session, unless something arrived meanwhile; wake it at `timer_us`, if set.

    With `now_us`, the time by the same clock, the timer is as far from Postgres's own now.
    """

    timer_us: int | None = None
    now_us: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """One session's entry in a batch: written only where epoch and expected head still match.

    `events` may be empty, when only the inbox position moves or the session is released.
    `answered` says that an effect's answer is among them (it zeroes the poison counter).
    """

    session_id: str
    epoch: int
    expected_head: int
    head: int
    head_hash: bytes
    events: tuple[SealedEvent, ...]
    facts: Facts
    inbox_seen: int
    answered: bool
    release: Release | None
    view: bytes | None


class Fate(StrEnum):
    """What became of an append."""

    WRITTEN = "written"
    FENCED = "fenced"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append: `released` only if it was asked for and the inbox was empty."""

    fate: Fate
    inbox_head: int = 0
    released: bool = False


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """Where a journal ends, and whether more will come of its own (for readers and read-back)."""

    head: int
    head_hash: bytes
    epoch: int
    idle: bool
    owner: str | None = None
    inbox_head: int = 0


class InboxKind(StrEnum):
    """What an inbox row asks."""

    MESSAGE = "message"
    RESUME = "resume"
    CANCEL = "cancel"
    CLOSE = "close"
    VERIFICATION = "verification"
    APPROVAL = "approval"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True)
class InboxRow:
    """One thing said to a session, in order `n`; the payload is sealed with the session's key."""

    n: int
    kind: InboxKind
    payload: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row to put into an inbox; `subject` is unique per kind and session, where given."""

    kind: InboxKind
    payload: bytes
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A session's data key, wrapped by the master key of this id; empty once it was destroyed."""

    key_id: str
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's row with everything a reader needs; sealed parts are opened at the edge."""

    id: str
    tenant: str
    agent: str
    agent_version: int
    model: str
    mode: str
    prompt: str
    facts: Facts
    key: WrappedKey
    head: int
    head_hash: bytes
    epoch: int
    inbox_head: int
    inbox_seen: int
    owner: str | None
    owner_alive: bool
    waking: bool
    created_at_us: int
    updated_at_us: int
    parent: str | None
    metadata: bytes | None
    view: bytes | None
    timer_at_us: int | None = None
    claims: int = 0
    on_disconnect: str = "continue"

    @property
    def status(self) -> Status:
        """Return the status as users see it: what the facts say, and whether an owner is at it."""
        if self.facts.status == "active" or not self.inbox_drained or self.waking:
            if self.facts.status == Status.CLOSED:
                return Status.CLOSED
            return Status.QUEUED if self.owner is None else Status.RUNNING
        return Status(self.facts.status)

    @property
    def inbox_drained(self) -> bool:
        """Return whether the owner has taken everything that was said."""
        return self.inbox_head == self.inbox_seen

    @property
    def pending_kind(self) -> PendingKind | None:
        """Return what a waiting session waits for."""
        return PendingKind(self.facts.pending_kind) if self.facts.pending_kind else None

    @property
    def stop_reason(self) -> StopReason | None:
        """Return why the last turn ended, if it did."""
        return StopReason(self.facts.stop_reason) if self.facts.stop_reason else None


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be created, with its first events, in one transaction."""

    id: str
    tenant: str
    agent: str
    agent_version: int
    model: str
    mode: str
    prompt: str
    facts: Facts
    key: WrappedKey
    head_hash: bytes
    events: tuple[SealedEvent, ...]
    parent: str | None
    metadata: bytes | None
    created_at_us: int
    view: bytes | None = None
    on_disconnect: str = "continue"


@dataclass(frozen=True, slots=True)
class Claim:
    """A session this worker has just taken. `takeover` says that an owner was lost before.

    `rang_us` is the session's timer when it had come due by Postgres's clock. Only that clock
    counts: by the worker's own the timer may be due too early, or not yet.
    """

    session_id: str
    tenant: str
    epoch: int
    claims: int
    key: WrappedKey
    head: int
    head_hash: bytes
    inbox_head: int
    inbox_seen: int
    takeover: bool
    rang_us: int | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """A session that a worker owns; `behind` when its inbox holds unseen rows."""

    session_id: str
    epoch: int
    behind: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folded state at a sequence number, sealed."""

    seq: int
    state_v: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer once given under an idempotency key; `status` 0 while it is being made."""

    body_hash: bytes
    status: int
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Remember:
    """An idempotency record to write together with what it stands for."""

    tenant: str
    key: str
    route: str
    body_hash: bytes
    status: int
    body: bytes
    session_id: str | None
    location: str | None = None
