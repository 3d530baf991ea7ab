"""What must hold of every session, and what is to be done where it does not.

The names of the invariants are labels of the metric `surefoot_invariant_violations`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Invariant(StrEnum):
    """What must hold of every session."""

    OWNED = "owned"
    """One that is not at rest has a living owner, a time at which it is due, or a reason to wait.
    """
    SWEPT = "swept"
    """One whose owner's lease is over is made due by the workers that live."""
    DENSE = "dense"
    """The journal's numbers run from 1 without a gap."""
    HEAD = "head"
    """The row's head and its hash are those of the journal's last event."""
    TURN_ENDS = "turn_ends"
    """A turn ends once."""
    INBOX = "inbox"
    """Every message that the owner has not taken is there, and none was taken that is not."""
    CHAIN = "chain"
    """Each event follows from the one before it and opens to what its columns say."""
    CALLS = "calls"
    """A turn that has ended left no tool call open, and a history that every provider takes."""
    FACTS = "facts"
    """The plain columns of the row say what the journal says."""
    FOLD = "fold"
    """The journal can be read and folded by this release."""


ADVICE: Final[Mapping[Invariant, str]] = {
    Invariant.OWNED: (
        "Nobody will run it by itself. `POST /v1/sessions/{id}/cancel` wakes and ends it; if it "
        "comes back, this is a bug: report it with `surefoot why` and the trace."
    ),
    Invariant.SWEPT: (
        "The workers that live do not take over. Look at their logs (`worker.refused`) and whether "
        "they reach the database; a restart of one sweeps at once."
    ),
    Invariant.DENSE: (
        "Events were removed by hand or by a damaged disk. Compare with a backup; what is left can "
        "be read up to the gap."
    ),
    Invariant.HEAD: (
        "Row and journal were changed apart, as by restoring one table only. Restore both from one "
        "backup; until then its owner writes nothing."
    ),
    Invariant.TURN_ENDS: "Two owners wrote: this is a bug. Report it with the trace.",
    Invariant.INBOX: (
        "Rows of the inbox were removed or its counters changed by hand. Send again what is "
        "missing; cancel the session if it does not come to rest."
    ),
    Invariant.CHAIN: (
        "The trail was changed, replaced or moved, by someone who can write to the database or by "
        "a damaged disk. Keep the database as it is, and compare with a backup."
    ),
    Invariant.CALLS: (
        "A provider may refuse the next turn. This is a bug: report it with the trace, and go on "
        "in a new session."
    ),
    Invariant.FACTS: (
        "Lists and filters show old facts; the trace is right. They are written anew at the next "
        "event; if it comes back, this is a bug."
    ),
    Invariant.FOLD: (
        "A newer release wrote it, or it is damaged: see what `chain` says of it. A worker of the "
        "newer release goes on with it."
    ),
}
"""What to do about a violation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant that does not hold of one session; `seq` is where, if it is at an event."""

    session_id: str
    invariant: Invariant
    detail: str
    seq: int | None = None

    @property
    def advice(self) -> str:
        """Return what to do."""
        return ADVICE[self.invariant].replace("{id}", self.session_id)

    def shown(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            "session": self.session_id,
            "invariant": self.invariant.value,
            "seq": self.seq,
            "detail": self.detail,
            "todo": self.advice,
        }


class FaultOfChain(StrEnum):
    """What can be wrong with a chain."""

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
