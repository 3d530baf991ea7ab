"""Readers of sessions that are to end with them (`on_disconnect: cancel`).

A session of this kind is cancelled when its last reader has left for longer than a browser needs to
come back. Readers of other processes count too: each process that has one is subscribed to the
session's channel. Where nobody can tell, and when it is this process that leaves, nothing is
cancelled.
"""

import asyncio
from collections import Counter
from typing import Final

from app.core.lifecycle import Verb
from app.runtime.errors import StoreUnavailable
from app.runtime.ports.live import Hub
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow
from app.runtime.refusals import Refused
from app.runtime.sessions.verbs import Sessions

GRACE_S: Final = 3.0
"""An EventSource comes back after the two seconds that `retry` told it, in one second more."""

PATIENCE: Final = 20
"""So many times it is looked again while Redis or Postgres does not answer."""


class Audience:
    """Counts the readers of this process. `run` must be running for a session to be cancelled."""

    def __init__(
        self, *, sessions: Sessions, hub: Hub, clock: Clock, draining: asyncio.Event
    ) -> None:
        """Start with nobody."""
        self._sessions = sessions
        self._hub = hub
        self._clock = clock
        self._draining = draining
        self._here: Counter[str] = Counter()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Carry the looks after those who left, for ever."""
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    def seat(self, row: SessionRow) -> "Seat | None":
        """Return a reader's seat; None for a session that goes on without readers."""
        return Seat(self, row.tenant, row.id) if row.on_disconnect == "cancel" else None

    def came(self, session_id: str) -> None:
        """Count one who begins to read."""
        self._here[session_id] += 1

    def left(self, tenant: str, session_id: str, *, early: bool) -> None:
        """Count one out; look after the session when it was the last, and left early."""
        self._here[session_id] -= 1
        if self._here[session_id] > 0:
            return
        del self._here[session_id]
        if early and self._group is not None and not self._draining.is_set():
            self._group.create_task(self._look_after(tenant, session_id))

    async def _look_after(self, tenant: str, session_id: str) -> None:
        for _ in range(PATIENCE):
            await self._clock.sleep(GRACE_S)
            if self._here[session_id] or self._draining.is_set():
                return
            readers = await self._hub.readers(session_id)
            if readers:
                return  # whoever is there looks when the last of them leaves
            if readers is None:
                continue
            try:
                await self._sessions.ask(tenant, session_id, Verb.CANCEL)
            except StoreUnavailable:
                continue
            except Refused:
                pass  # erased, or gone
            return


class Seat:
    """One reader's place in the audience of a session."""

    def __init__(self, audience: Audience, tenant: str, session_id: str) -> None:
        """Belong to a session of a tenant."""
        self._audience = audience
        self._tenant = tenant
        self._session_id = session_id

    def take(self) -> None:
        """Begin to read."""
        self._audience.came(self._session_id)

    def leave(self, *, early: bool) -> None:
        """Read no more; `early`, before the stream came to its end."""
        self._audience.left(self._tenant, self._session_id, early=early)
