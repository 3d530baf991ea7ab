"""Keys and encodings: events and states to bytes and back, sealed and linked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.events import Event
from app.core.state import State


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A session's data key, wrapped by the master key of this id; empty once it was destroyed."""

    key_id: str
    wrapped: bytes


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
