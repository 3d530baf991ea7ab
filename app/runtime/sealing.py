"""Events on their way into the journal and out of it: encoded once, sealed, chained."""

from collections.abc import Iterable

from app.core.events import Event
from app.core.state import STATE_V, State
from app.runtime.ports.journal import SealedEvent, Snapshot
from app.runtime.ports.keys import Codec, SessionCipher
from app.runtime.telling import told_as


def event_context(seq: int) -> bytes:
    """Return the context in which an event's payload opens."""
    return b"event:%d" % seq


VIEW_CONTEXT = b"view"
METADATA_CONTEXT = b"metadata"
INBOX_CONTEXT = b"inbox"
DELTA_CONTEXT = b"delta"


def _snapshot_context(seq: int) -> bytes:
    return b"state:%d" % seq


class Sealer:
    """Seals and opens the events and states of one session."""

    def __init__(self, codec: Codec, cipher: SessionCipher) -> None:
        """Work with this session's cipher."""
        self._codec = codec
        self.cipher = cipher

    def seal(
        self, events: Iterable[Event], head_hash: bytes, state: State | None = None
    ) -> tuple[SealedEvent, ...]:
        """Return events sealed and linked to the hash before them; `state` is their fold."""
        sealed: list[SealedEvent] = []
        previous = head_hash
        for event in events:
            plain = self._codec.encode(event)
            payload = self.cipher.seal(plain, event_context(event.seq))
            version = event.body.V
            previous = self.cipher.link(event.seq, version, payload, previous)
            sealed.append(
                SealedEvent(
                    event.seq,
                    version,
                    event.body.TYPE,
                    event.phase,
                    event.turn,
                    event.step,
                    event.at_us,
                    payload,
                    previous,
                    told_as(event.body, state),
                )
            )
        return tuple(sealed)

    def open(self, sealed: SealedEvent) -> Event:
        """Return a stored event."""
        return self._codec.decode(self.cipher.open(sealed.payload, event_context(sealed.seq)))

    def view(self, plain: bytes) -> bytes:
        """Return the session's view, sealed."""
        return self.cipher.seal(plain, VIEW_CONTEXT)

    def snapshot(self, state: State) -> Snapshot:
        """Return a folded state, sealed."""
        plain = self._codec.encode_state(state)
        payload = self.cipher.seal(plain, _snapshot_context(state.seq))
        return Snapshot(state.seq, STATE_V, payload)

    def restore(self, snapshot: Snapshot) -> State:
        """Return the state of a snapshot."""
        plain = self.cipher.open(snapshot.payload, _snapshot_context(snapshot.seq))
        return self._codec.decode_state(plain)
