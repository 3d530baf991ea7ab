"""Verifying a journal: nothing changed, removed, reordered or cut; the index tells the truth."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.core.events import Event
from app.runtime.errors import Tampered
from app.runtime.records import SealedEvent
from app.storage.keys import Chain

Opener = Callable[[SealedEvent], Event]
"""Opens a sealed event; raises `Tampered` when it does not open."""


class FaultOfChain(StrEnum):
    """What can be wrong with a journal."""

    GAP = "gap"  # an event is missing, or stands in another place
    HASH = "hash"  # an event does not follow from the one before it: it was changed or replaced
    SEALED = "sealed"  # an event does not open, though its hash is right
    INDEX = "index"  # the plain columns say something else than the sealed event
    CUT = "cut"  # the journal ends before the head that the session knows


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """The first fault of a journal: `seq` is where, `fault` what, `detail` in words."""

    seq: int
    fault: FaultOfChain
    detail: str


def verify_chain(
    rows: Iterable[SealedEvent],
    chain: Chain,
    *,
    head: int,
    head_hash: bytes,
    opener: Opener | None,
) -> BrokenLink | None:
    """Return the first fault of a whole journal in its order, or None.

    `head` and `head_hash` are what the session's row says. Without an opener (the content was
    erased) the sealed bytes are verified, and the index cannot be compared.
    """
    previous, seq = b"", 0
    for row in rows:
        seq += 1
        if row.seq != seq:
            return BrokenLink(seq, FaultOfChain.GAP, f"event {row.seq} stands where {seq} belongs")
        if chain.link(row.seq, row.v, row.payload, previous) != row.hash:
            return BrokenLink(seq, FaultOfChain.HASH, "the event does not follow from its past")
        fault = _compare(row, opener) if opener else None
        if fault:
            return fault
        previous = row.hash
    if (seq, previous) != (head, head_hash):
        return BrokenLink(seq + 1, FaultOfChain.CUT, f"the journal ends at {seq}, not at {head}")
    return None


def _compare(row: SealedEvent, opener: Opener) -> BrokenLink | None:
    try:
        event = opener(row)
    except Tampered as error:
        return BrokenLink(row.seq, FaultOfChain.SEALED, str(error))
    told = (row.seq, row.type, row.phase, row.turn, row.step, row.at_us)
    true = (event.seq, event.body.TYPE, event.phase, event.turn, event.step, event.at_us)
    wrong = [name for name, a, b in zip(_INDEX, told, true, strict=True) if a != b]
    if wrong:
        return BrokenLink(row.seq, FaultOfChain.INDEX, f"columns differ: {', '.join(wrong)}")
    return None


_INDEX = ("seq", "type", "phase", "turn", "step", "at")
