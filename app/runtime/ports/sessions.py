"""Sessions as rows, their inboxes, and idempotency records."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.core.lifecycle import PendingKind, Status, StopReason
from app.runtime.ports.journal import Facts, SealedEvent
from app.runtime.ports.keys import WrappedKey


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
    def is_due(self) -> bool:
        """Return whether a worker should claim the session now."""
        return not self.owner_alive and (self.waking or not self.inbox_drained)

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

    def row(self) -> SessionRow:
        """Return the row as it is once this is stored: due, and nobody's."""
        return SessionRow(
            id=self.id,
            tenant=self.tenant,
            agent=self.agent,
            agent_version=self.agent_version,
            model=self.model,
            mode=self.mode,
            prompt=self.prompt,
            facts=self.facts,
            key=self.key,
            head=self.events[-1].seq,
            head_hash=self.head_hash,
            epoch=0,
            inbox_head=0,
            inbox_seen=0,
            owner=None,
            owner_alive=False,
            waking=True,
            created_at_us=self.created_at_us,
            updated_at_us=self.created_at_us,
            parent=self.parent,
            metadata=self.metadata,
            view=self.view,
            on_disconnect=self.on_disconnect,
        )


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


class LockedSession(Protocol):
    """A session row locked in a transaction which commits when its block ends without error."""

    @property
    def row(self) -> SessionRow:
        """Return the row as it is under the lock."""

    async def deliver(self, delivery: Delivery) -> int | None:
        """Put a row into the inbox and wake the session; None when the subject is taken.

        None also once the inbox holds a request to close: nothing after it would be answered.
        """

    async def newest(self) -> InboxKind | None:
        """Return the kind of the newest inbox row that the owner has not seen, if there is one."""

    async def wake(self) -> None:
        """Make the session due now."""

    async def erase(self) -> None:
        """Destroy the session's data key, and every copy of its content under another key.

        Of answers kept under idempotency keys only the keys stay, with the status `GONE`.
        """

    async def recall(self, key: str) -> Remembered | None:
        """Return what is remembered under an idempotency key of this tenant."""

    async def remember(self, record: Remember) -> None:
        """Write an idempotency record in this transaction."""


class SessionStore(Protocol):
    """Sessions as rows, their inboxes, and idempotency records."""

    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        """Create a session; or return what the idempotency key stands for already."""

    async def get(self, tenant: str, session_id: str) -> SessionRow | None:
        """Return a session's row."""

    async def page(
        self,
        tenant: str,
        *,
        after: str | None,
        limit: int,
        status: str | None,
        agent: str | None,
        tool: str | None,
    ) -> list[SessionRow]:
        """Return rows, newest first, after the given id."""

    async def pending(
        self, tenant: str, kinds: Sequence[PendingKind], *, after: str | None, limit: int
    ) -> list[SessionRow]:
        """Return the rows of sessions that wait for one of these, newest first, after an id."""

    def locked(
        self, tenant: str, session_id: str
    ) -> AbstractAsyncContextManager[LockedSession | None]:
        """Lock a session's row for a moment; None when there is none of this tenant."""

    async def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        """Return the inbox rows after a position, in order."""

    async def recall(self, tenant: str, key: str) -> Remembered | None:
        """Return what is remembered under an idempotency key."""

    async def begin_remembering(self, record: Remember) -> Remembered | None:
        """Mark a key as in flight (status 0), or return what is there already."""

    async def finish_remembering(self, record: Remember) -> None:
        """Replace an in-flight mark by the answer."""

    async def retake_mark(self, record: Remember, older_s: float) -> bool:
        """Make an in-flight mark that is older than this one's own; False when it is not."""

    async def drop_mark(self, record: Remember) -> None:
        """Take an in-flight mark away: the request had no effect, or may be made again."""
