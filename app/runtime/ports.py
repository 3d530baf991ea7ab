"""The ports of the runtime. One suite in tests/conformance runs on each fake and its adapter."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.core.events import Event, ModelRef, PromptRef, ToolRef
from app.core.lifecycle import PendingKind
from app.core.state import State
from app.core.toolbox import ToolSpec
from app.runtime.exchange import (
    Checked,
    LiveEvent,
    ModelReply,
    ModelRequest,
    StatusReply,
    ToolReply,
    ToolRequest,
)
from app.runtime.records import (
    Append,
    Appended,
    Claim,
    Delivery,
    HeadInfo,
    InboxKind,
    InboxRow,
    NewSession,
    Owned,
    Remember,
    Remembered,
    SealedEvent,
    SessionRow,
    Snapshot,
    WrappedKey,
)


class Clock(Protocol):
    """The only source of time, chance and sleep."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""

    def boot_s(self) -> float:
        """Return seconds on a clock which also runs while the process or machine is stopped."""

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""

    async def sleep(self, seconds: float) -> None:
        """Return after this long."""


class Codec(Protocol):
    """Events and states to bytes and back; an event is encoded once and stays those bytes."""

    def encode(self, event: Event) -> bytes:
        """Return the wire event as JSON."""

    def decode(self, payload: bytes) -> Event:
        """Return the event, lifted to today's version."""

    def encode_state(self, state: State) -> bytes:
        """Return a state for a snapshot."""

    def decode_state(self, payload: bytes) -> State:
        """Return the state of a snapshot of today's `STATE_V`."""


class SessionCipher(Protocol):
    """Seals and opens what belongs to one session, and links its chain."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return sealed bytes which open only in the same context."""

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain bytes."""

    def link(self, event_seq: int, v: int, payload: bytes, previous: bytes) -> bytes:
        """Return the chain's hash over this sealed event and the hash before it."""


class Keyring(Protocol):
    """Master keys: they wrap the data key of each session."""

    @property
    def ids(self) -> Sequence[str]:
        """Return the ids of the master keys of this process."""

    def create(self, session_id: str) -> tuple[WrappedKey, SessionCipher]:
        """Return a new data key, wrapped, and its cipher."""

    def unwrap(self, session_id: str, key: WrappedKey) -> SessionCipher:
        """Return the cipher of a session.

        Raises:
            Erased: when the key was destroyed.

        """

    def seal_record(self, plain: bytes) -> bytes:
        """Seal something that belongs to no session (an idempotent answer)."""

    def open_record(self, sealed: bytes) -> bytes:
        """Open such a record."""

    def digest_record(self, plain: bytes) -> bytes:
        """Return a keyed digest, with the id of the master key that it was made with."""

    def is_digest(self, digest: bytes, plain: bytes) -> bool:
        """Return whether a digest is that of these bytes."""


class JournalStore(Protocol):
    """The journal in Postgres: the only truth."""

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        """Write entries of different sessions in one statement; answers in the same order.

        Raises:
            StoreUnavailable: when it is not known whether the batch was committed.

        """

    async def read(
        self, session_id: str, after: int, limit: int, most_bytes: int | None = None
    ) -> list[SealedEvent]:
        """Return up to `limit` events after a sequence number, in order.

        With `most_bytes`, none after the one with which their payloads reach that size.
        """

    async def read_many(self, after: Mapping[str, int]) -> dict[str, list[SealedEvent]]:
        """Return all events after the given numbers, of several sessions at once."""

    async def heads(self, ids: Sequence[str]) -> dict[str, HeadInfo]:
        """Return where each journal ends now."""

    async def save_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, replacing an older one."""

    async def latest_snapshot(self, session_id: str) -> Snapshot | None:
        """Return the newest snapshot."""


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
        """Return the rows of sessions that wait for one of these, newest first, after the given id."""

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


class WorkerStore(Protocol):
    """Leases and claims, all by Postgres's clock."""

    async def renew(self, worker: str, lease_s: float) -> None:
        """Create or renew this worker's lease."""

    async def claim(
        self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]
    ) -> list[Claim]:
        """Take up to `limit` sessions that are due, have no living owner, and use these keys."""

    async def sweep(self) -> int:
        """Make due every session whose owner's lease is over; return how many."""

    async def owned(self, worker: str) -> list[Owned]:
        """Return the sessions which this worker owns now."""

    async def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        """Let a session go without an append, due at once; blameless: the claim does not count."""

    async def remove(self, worker: str) -> None:
        """End this worker's lease."""

    async def any_alive(self) -> bool:
        """Return whether some worker's lease holds."""

    async def queued(self, most: int) -> int:
        """Return how many sessions are due and have no owner; counted no further than `most`."""


class ToolStore(Protocol):
    """Tools as immutable versions with one current head each."""

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        """Store the next version; None when creating a name that exists, or changing none."""

    async def current(self, tenant: str) -> list[ToolSpec]:
        """Return the current version of every tool that was not deleted, by name."""

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        """Return one version, deleted tools included."""

    async def delete(self, tenant: str, name: str) -> bool:
        """Withdraw a tool; sessions that pinned it keep their version."""


class Hub(Protocol):
    """Live fan-out between processes. Losing it costs time, never an event."""

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        """Pass these on to whoever follows; drop them silently when the hub is away."""

    def followed(self, session_id: str) -> bool:
        """Return whether some process has a reader on this session."""

    def subscribe(
        self, session_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent | None]]:
        """Follow a session; entered only once the subscription is confirmed (or impossible).

        Yields None when something may have been missed (a lost connection, an overflow).
        """

    async def readers(self, session_id: str) -> int | None:
        """Return how many processes have readers on this session; None when nobody can tell."""

    async def nudge(self, session_id: str) -> None:
        """Tell workers that a session has become due or got a message."""

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        """Call back for each nudge."""


class HotStates(Protocol):
    """Folded states in Redis, sealed, for a quick resume."""

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a state; silently not, when Redis is away."""

    async def get(self, session_id: str) -> Snapshot | None:
        """Return the state, or None."""


class ModelPort(Protocol):
    """Language models by name."""

    def get(self, name: str | None) -> ModelRef | None:
        """Return a model's facts (None: the default model), or None when it is unknown."""

    def names(self) -> list[ModelRef]:
        """Return every model there is, the default first."""

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Buy one answer; text deltas go to the callback as they come.

        Raises:
            ModelFailure: with the fault, when this attempt gave no usable answer.

        """


class ToolPort(Protocol):
    """Carries tools out."""

    async def run(self, request: ToolRequest) -> ToolReply:
        """Run one attempt, within its timeout.

        Raises:
            ToolFailure: with the fault and whether it may have been sent.
            Withheld: when the request might not be sent any more, and was not.

        """

    async def check(self, request: ToolRequest) -> StatusReply:
        """Ask the tool whether a call under this key took effect.

        Raises:
            ToolFailure: when it cannot be asked now.
            Withheld: when the question might not be sent any more, and was not.

        """


class ArgumentReader(Protocol):
    """Reads and validates the arguments of calls."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        """Return the arguments of a call, or why it cannot run."""


class Tokens(Protocol):
    """Counts tokens with the model's own tokenizer, offline."""

    async def count(self, text: str, encoding: str) -> int:
        """Return the count; long texts are counted off the event loop."""


class Prompts(Protocol):
    """Prompt versions."""

    def text(self, name: str, version: int) -> str:
        """Return the text of a version."""


class PromptCatalog(Prompts, Protocol):
    """Prompt versions as a session pins them."""

    async def ref(self, name: str, encoding: str) -> PromptRef:
        """Return the version of a prompt which new sessions take."""


class Observer(Protocol):
    """Is told of everything that was committed; spans, metrics and log lines are its business."""

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Take note of events that are durable now."""

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Take note of the open turn's events again, after a takeover: their spans may be lost."""

    def traceparent(self, state: State, effect_key: str) -> str:
        """Return the W3C trace context for a request that this effect makes."""

    def log(self, event: str, **fields: object) -> None:
        """Write one structured log line."""
