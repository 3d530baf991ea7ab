"""From a claim to a state: hot state, snapshot, journal, whichever is the shortest way.

After an owner was lost the open turn is shown to the observer once more, since the spans of its
last moments may have been lost with the process; they have the same ids and fall together.
"""

from dataclasses import dataclass
from typing import Final

from app.core.events import Event, SessionCreated, TurnEnded, TurnStarted
from app.core.evolve import BrokenJournalError, evolve
from app.core.state import STATE_V, State
from app.runtime.errors import PortError
from app.runtime.ports.journal import JournalStore, SealedEvent, Snapshot
from app.runtime.ports.keys import Codec, Keyring
from app.runtime.ports.live import HotStates
from app.runtime.ports.process import Observer
from app.runtime.ports.workers import Claim
from app.runtime.sealing import Sealer

SHORT_JOURNAL: Final = 64
PAGE: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Folds sessions."""

    codec: Codec
    keyring: Keyring
    journal: JournalStore
    hot: HotStates
    observer: Observer

    def sealer(self, claim: Claim) -> Sealer:
        """Return what opens and seals a session's events.

        Raises:
            Erased: when its content was erased.

        """
        cipher = self.keyring.unwrap(claim.session_id, claim.key)
        return Sealer(self.codec, cipher)

    async def fold(
        self, claim: Claim, sealer: Sealer, read: list[SealedEvent] | None = None
    ) -> State:
        """Return the state at the claim's head; `read` holds the events when they were read.

        Raises:
            BrokenJournalError: when the journal does not lead to the claim's head.

        """
        state = None
        if read is None:
            state = await self._copy(claim, sealer)
            read = []
        before, shown = state, list[Event]()
        for sealed in read or await self._rest(claim, 0 if state is None else state.seq):
            if sealed.seq > claim.head:
                break  # another owner took over meanwhile: we are fenced off, nothing is broken
            event = sealer.open(sealed)
            if isinstance(event.body, SessionCreated | TurnStarted):
                before, shown = state, []
            shown.append(event)
            state = evolve(state, event)
        if state is None or state.seq != claim.head:
            at = 0 if state is None else state.seq
            message = f"The journal ends at {at}, the session's head is {claim.head}."
            raise BrokenJournalError(message)
        if claim.takeover and shown and not isinstance(shown[-1].body, TurnEnded):
            self.observer.replayed(before, shown, state)
        return state

    async def _copy(self, claim: Claim, sealer: Sealer) -> State | None:
        """Return a folded copy, if one fits and saves reading."""
        if claim.head <= SHORT_JOURNAL:
            return None
        hot = await self.hot.get(claim.session_id)
        state = self._restored(hot, claim, sealer)
        if state is None:
            kept = await self.journal.latest_snapshot(claim.session_id)
            state = self._restored(kept, claim, sealer)
        return state

    def _restored(self, copy: Snapshot | None, claim: Claim, sealer: Sealer) -> State | None:
        """Return the state of a copy that fits; one that cannot be read only costs time."""
        if copy is None or copy.state_v != STATE_V or copy.seq > claim.head:
            return None
        try:
            return sealer.restore(copy)
        except (PortError, ValueError) as error:
            self.observer.log(
                "session.copy_unreadable", session_id=claim.session_id, error=type(error).__name__
            )
            return None

    async def _rest(self, claim: Claim, after: int) -> list[SealedEvent]:
        events: list[SealedEvent] = []
        while True:
            page = await self.journal.read(claim.session_id, after, PAGE)
            events.extend(page)
            if len(page) < PAGE:
                return events
            after = page[-1].seq
