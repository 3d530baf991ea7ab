"""Verifying a journal: nothing changed, removed, reordered or cut; the index tells the truth."""

from collections.abc import Callable, Iterable
from typing import Protocol

from app.core.events import Event
from app.runtime.errors import Erased, Tampered
from app.runtime.explaining.findings import BrokenLink, FaultOfChain
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import Codec, WrappedKey
from app.runtime.sealing import Sealer
from app.storage.keys import MasterKeys

__all__ = ["BrokenLink", "ChainWalk", "Chains", "FaultOfChain", "Links", "Opener", "verify_chain"]

Opener = Callable[[SealedEvent], Event]
"""Opens a sealed event; raises `Tampered` when it does not open."""


class Links(Protocol):
    """What links the events of one session."""

    def link(self, event_seq: int, v: int, payload: bytes, previous: bytes) -> bytes:
        """Return the hash over this sealed event and the hash before it."""


class ChainWalk:
    """Verifies a journal page by page. `broken` is its first fault; nothing is read after it."""

    def __init__(self, chain: Links, opener: Opener | None) -> None:
        """Start before the first event; without an opener the sealed bytes alone are verified."""
        self._chain = chain
        self._opener = opener
        self._seq = 0
        self._previous = b""
        self.broken: BrokenLink | None = None

    @property
    def opens(self) -> bool:
        """Return whether the content is there to be opened."""
        return self._opener is not None

    def take(self, rows: Iterable[SealedEvent]) -> list[Event]:
        """Verify the next events in their order, and return those that are whole, opened."""
        opened: list[Event] = []
        for row in rows:
            if self.broken is None:
                self._seq += 1
                self.broken = self._linked(row) or self._compared(row, opened)
                self._previous = row.hash
        return opened

    def end(self, head: int, head_hash: bytes) -> BrokenLink | None:
        """Return the first fault, the journal having been read to its end."""
        if self.broken is None and (self._seq, self._previous) != (head, head_hash):
            detail = f"the journal ends at {self._seq}, not at {head}"
            self.broken = BrokenLink(self._seq + 1, FaultOfChain.CUT, detail)
        return self.broken

    def _linked(self, row: SealedEvent) -> BrokenLink | None:
        seq = self._seq
        if row.seq != seq:
            return BrokenLink(seq, FaultOfChain.GAP, f"event {row.seq} stands where {seq} belongs")
        if self._chain.link(row.seq, row.v, row.payload, self._previous) != row.hash:
            return BrokenLink(seq, FaultOfChain.HASH, "the event does not follow from its past")
        return None

    def _compared(self, row: SealedEvent, opened: list[Event]) -> BrokenLink | None:
        if self._opener is None:
            return None
        try:
            event = self._opener(row)
        except Tampered as error:
            return BrokenLink(row.seq, FaultOfChain.SEALED, str(error))
        told = (row.seq, row.type, row.phase, row.turn, row.step, row.at_us)
        true = (event.seq, event.body.TYPE, event.phase, event.turn, event.step, event.at_us)
        wrong = [name for name, a, b in zip(_INDEX, told, true, strict=True) if a != b]
        if wrong:
            detail = f"columns differ: {', '.join(wrong)}"
            return BrokenLink(row.seq, FaultOfChain.INDEX, detail)
        opened.append(event)
        return None


def verify_chain(
    rows: Iterable[SealedEvent],
    chain: Links,
    *,
    head: int,
    head_hash: bytes,
    opener: Opener | None,
) -> BrokenLink | None:
    """Return the first fault of a whole journal in its order, or None.

    `head` and `head_hash` are what the session's row says. Without an opener (the content was
    erased) the sealed bytes are verified, and the index cannot be compared.
    """
    walk = ChainWalk(chain, opener)
    walk.take(rows)
    return walk.end(head, head_hash)


class Chains:
    """The chains of all sessions, with the master keys of this process."""

    def __init__(self, keyring: MasterKeys, codec: Codec) -> None:
        """Open events with this codec."""
        self._keyring = keyring
        self._codec = codec

    def walk(self, session_id: str, key: WrappedKey) -> ChainWalk:
        """Return what verifies a session's journal.

        Raises:
            KeyMissing: when the session's master key is not here.
            Tampered: when its data key does not open.

        """
        chain = self._keyring.chain(session_id, key.key_id)
        try:
            cipher = self._keyring.unwrap(session_id, key)
        except Erased:
            return ChainWalk(chain, None)
        return ChainWalk(chain, Sealer(self._codec, cipher).open)


_INDEX = ("seq", "type", "phase", "turn", "step", "at")
