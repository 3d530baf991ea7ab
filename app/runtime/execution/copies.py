"""When the folded state is copied, so that all copies together grow as the journal does.

A copy is as large as the session. Copies at fixed distances would add up to the square of its
length; here the distances grow with it. Between two doublings of the journal there is one snapshot
in Postgres, and two copies go to Redis. So what is read beside a snapshot is no more than half of a
journal, and beside a hot state no more than a third.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from app.core.state import State
from app.runtime.errors import PortError
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.live import HotStates
from app.runtime.sealing import Sealer

HOT_LEAST: Final = 64
"""The shortest distance of hot states; sessions as short as this are copied at every rest."""
HOT_PER_DOUBLING: Final = 2
SNAPSHOT_LEAST: Final = 256
SNAPSHOT_PER_DOUBLING: Final = 1


def mark(seq: int, least: int, per_doubling: int) -> int:
    """Return the last place up to `seq` where a copy is due; 0 before the first one."""
    doubled = 1 << seq.bit_length() >> 1  # the last power of two up to there
    distance = max(least, doubled // per_doubling)
    return seq // distance * distance


@dataclass(frozen=True, slots=True)
class Copies:
    """Writes the copies of one session. Each may be lost: the journal has it all."""

    hot: HotStates
    journal: JournalStore
    sealer: Sealer

    async def keep(self, before: int, after: State, *, at_rest: bool) -> None:
        """Copy the state where its last append, from `before` on, passed a place for it."""
        short = at_rest and after.seq <= HOT_LEAST
        hot = short or _passed(before, after.seq, HOT_LEAST, HOT_PER_DOUBLING)
        lasting = _passed(before, after.seq, SNAPSHOT_LEAST, SNAPSHOT_PER_DOUBLING)
        if not hot and not lasting:
            return
        copy = self.sealer.snapshot(after)
        if hot:
            await self.hot.put(after.session_id, copy)
        if lasting:
            with contextlib.suppress(PortError):
                await self.journal.save_snapshot(after.session_id, copy)


def _passed(before: int, after: int, least: int, per_doubling: int) -> bool:
    return mark(before, least, per_doubling) != mark(after, least, per_doubling)
