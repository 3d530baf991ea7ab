"""Hot states in memory."""

from app.runtime.records import Snapshot


class MemoryHotStates:
    """A `HotStates` on a dictionary; `away` makes it behave as without Redis."""

    def __init__(self) -> None:
        self.states: dict[str, Snapshot] = {}
        self.away = False

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        if not self.away:
            self.states[session_id] = snapshot

    async def get(self, session_id: str) -> Snapshot | None:
        return None if self.away else self.states.get(session_id)
