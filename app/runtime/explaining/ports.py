"""The ports through which invariants are looked at; `app.runtime.ports` has the others."""

from collections.abc import Sequence
from typing import Protocol

from app.core.events import Event
from app.runtime.explaining.findings import BrokenLink, Finding
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.sessions import SessionRow


class ChainWalk(Protocol):
    """Verifies one journal page by page."""

    @property
    def broken(self) -> BrokenLink | None:
        """Return the first fault that was found; what comes after it is not looked at."""

    @property
    def opens(self) -> bool:
        """Return whether the content is there to be opened; of an erased one only hashes are."""

    def take(self, rows: Sequence[SealedEvent]) -> list[Event]:
        """Verify the next events in their order, and return those that are whole, opened."""

    def end(self, head: int, head_hash: bytes) -> BrokenLink | None:
        """Return the first fault, the journal having been read to its end."""


class Chains(Protocol):
    """The hash chains of journals, which outlive the content."""

    def walk(self, session_id: str, key: WrappedKey) -> ChainWalk:
        """Return what verifies a session's journal.

        Raises:
            KeyMissing: when the session's master key is not here.
            Tampered: when its data key does not open.

        """


class AuditStore(Protocol):
    """What can be seen of the invariants without opening anything; each answer is of one moment."""

    async def after(self, session_id: str, limit: int) -> list[str]:
        """Return the ids of the next sessions of any tenant, in the order of their ids."""

    async def newest(self, limit: int) -> list[str]:
        """Return the ids of the newest sessions."""

    async def row(self, session_id: str) -> SessionRow | None:
        """Return a session's row, whoever's it is."""

    async def check(self, ids: Sequence[str], events: int) -> list[Finding]:
        """Look at these sessions, and at up to so many of the last events of each."""

    async def suspects(self) -> list[Finding]:
        """Return sessions that nobody will run, of all there are: found by index, not many."""
