"""Side jobs: work beside the sessions (deliveries, schedules, retention), one port for all kinds.

A kind keeps its truth in its own rows. A queue may lose, repeat or delay a job without harm: what
is due is asked of the rows every second, and a job is only a hint to look at one of them.
"""

from collections.abc import Sequence
from typing import Final, Protocol

OF_A_KIND: Final = 64
"""How many jobs of a kind that waits for others run at once; other kinds find room beside it."""

OF_OUR_OWN: Final = 16
"""How many of a kind that asks only Postgres: more would make sessions wait for a connection."""


class SideJob(Protocol):
    """One kind of side job."""

    @property
    def name(self) -> str:
        """Return the kind's name, of lower-case letters, digits and underscores."""

    @property
    def parallel(self) -> int:
        """Return how many of its jobs run at once, in all processes together."""

    async def due(self, limit: int) -> Sequence[str]:
        """Return ids of what is due now, the longest waiting first.

        Called each second by every worker process: one cheap statement. A job that failed is not
        due again before the time its row says.
        """

    async def run(self, job_id: str) -> None:
        """Do one, and write into its row what came of it.

        Idempotent: it may be called for what is done, gone, or not due any more, and twice at
        once in two processes. What it raises is logged; the row decides whether there is more to
        do, and when.
        """
