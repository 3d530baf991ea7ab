"""The journal: sealed events, the appends that write them, and what a row says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SealedEvent:
    """One event as stored: a plain index beside the encrypted wire event and the chain's hash.

    `told` is known only of one that is written: under which name endpoints are told of it.
    """

    seq: int
    v: int
    type: str
    phase: str | None
    turn: int
    step: int
    at_us: int
    payload: bytes
    hash: bytes
    told: str | None = None


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
    `unless_behind` says to write nothing when the inbox holds what was not seen: for events which
    what was said there would have prevented.
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
    unless_behind: bool = False


class Fate(StrEnum):
    """What became of an append."""

    WRITTEN = "written"
    FENCED = "fenced"
    SKIPPED = "skipped"
    BEHIND = "behind"


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folded state at a sequence number, sealed."""

    seq: int
    state_v: int
    payload: bytes


class JournalStore(Protocol):
    """The journal in Postgres: the only truth."""

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        """Write entries of different sessions in one statement; answers in the same order.

        Raises:
            StoreUnavailable: when it is not known whether the batch was committed.

        """

    async def append_in_turn(self, entry: Append) -> Appended:
        """Write one entry, queuing for its row with all who want it; skipped if that is too long.

        Raises:
            StoreUnavailable: when it is not known whether the entry was committed.

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
