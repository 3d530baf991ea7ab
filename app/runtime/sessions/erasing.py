"""Erasing a session's content on request: its data key is destroyed, its chain stays whole.

What is left is the row with its plain facts (model, tools, usage, times) and a journal of sealed
bytes that nobody can open any more, whose chain of hashes still verifies.
"""

from dataclasses import dataclass
from typing import Final

from app.core.lifecycle import ALIVE
from app.runtime.ports.process import Clock
from app.runtime.refusals import Conflict, NoWorker
from app.runtime.sessions.verbs import Sessions

TRIES: Final = 20
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """The use case. One for the whole process."""

    clock: Clock
    sessions: Sessions

    async def erase(self, tenant: str, session_id: str) -> None:
        """Erase a session's content; an open turn is cancelled first. Again: nothing happens.

        Raises:
            NotFound: when there is none of this tenant.
            NoWorker: when a turn is open and nobody is there to cancel it.
            Conflict: when it is given something new each time it has come to rest.

        """
        for _ in range(TRIES):
            row = await self.sessions.row(tenant, session_id)
            if row.status in ALIVE and row.key.wrapped:
                await self._end(tenant, session_id)
            async with self.sessions.locked(tenant, session_id, None) as (locked, _):
                if not locked.row.key.wrapped:
                    return
                if locked.row.status not in ALIVE and locked.row.owner is None:
                    await locked.erase()
                    return
            await self.clock.sleep(PAUSE_S)
        raise Conflict("The session does not come to rest; close it, then try again.")

    async def _end(self, tenant: str, session_id: str) -> None:
        try:
            await self.sessions.cancel(tenant, session_id)
        except NoWorker as error:
            detail = (
                "Nothing is erased yet: the open turn has to end first, and no worker ended it in "
                "time. Its cancellation is kept; ask again once a worker runs."
            )
            raise NoWorker(detail) from error
