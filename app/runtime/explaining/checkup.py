"""A session's invariants, looked at in full: its chain, its fold, and what its row says of it.

A journal is append-only and a row is written with the events that it stands for; so a row and the
events up to its head agree at any moment, also in a session that is running.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from app.core.events import Event, ModelAnswered, ToolFinished, TurnEnded
from app.core.evolve import BrokenJournalError, evolve
from app.core.lifecycle import Phase
from app.core.messages import sequence_fault
from app.core.state import State
from app.core.upcasters import UnreadableEventError
from app.runtime.errors import KeyMissing, Tampered
from app.runtime.explaining.findings import BrokenLink, FaultOfChain, Finding, Invariant
from app.runtime.explaining.ports import AuditStore, Chains, ChainWalk
from app.runtime.past import pages
from app.runtime.ports.journal import Facts, JournalStore, SealedEvent
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow
from app.runtime.views import facts_of

SESSIONS: Final = 100
EVERY_EVENT: Final = 2**40
RECHECK_S: Final = 1.0
_NEWER: Final = frozenset({"ended_at_us"})
"""Facts that an append without events may write anew."""


@dataclass(slots=True)
class Reading:
    """Folds a journal and notes what no machine of ours writes."""

    session_id: str
    state: State | None = None
    given_up: bool = False
    findings: list[Finding] = field(default_factory=list)
    _open: set[str] = field(default_factory=set)

    def take(self, events: Iterable[Event]) -> None:
        """Fold the next events.

        Raises:
            BrokenJournalError: when they do not follow one another.

        """
        for event in events:
            before, self.state = self.state, evolve(self.state, event)
            self._follow(event, before)

    def _follow(self, event: Event, before: State | None) -> None:
        body = event.body
        self.given_up = False
        if isinstance(body, ModelAnswered):
            self._open |= {call.call_id for call in body.tool_calls}
        elif isinstance(body, ToolFinished):
            self._open.discard(body.call_id)
        elif isinstance(body, TurnEnded):
            # Whoever could not fold a session ended its turn at once; folding closes its calls.
            self.given_up = before is None or before.phase is not Phase.DONE
            if self._open and not self.given_up:
                self._report(event, f"open when the turn ended: {', '.join(sorted(self._open))}")
            fault = None if self.state is None else sequence_fault(self.state.history)
            if fault is not None:
                self._report(event, fault.message)
            self._open.clear()

    def _report(self, event: Event, detail: str) -> None:
        self.findings.append(Finding(self.session_id, Invariant.CALLS, detail, event.seq))

    def compare(self, told: Facts) -> None:
        """Compare the folded state with the plain columns of the row."""
        if self.state is None or self.given_up:
            return  # whoever gave it up wrote the row without knowing the fold
        true = facts_of(self.state)
        wrong = [name for name in asdict(true) if not _agree(name, told, true)]
        if wrong:
            detail = "; ".join(f"{n}: {getattr(told, n)} for {getattr(true, n)}" for n in wrong)
            self.findings.append(Finding(self.session_id, Invariant.FACTS, detail))


def _agree(name: str, told: Facts, true: Facts) -> bool:
    one, other = getattr(told, name), getattr(true, name)
    if name in _NEWER:
        return (one is None) == (other is None)
    if name in {"usage", "limits"}:  # an older release knew fewer of them
        known, all_of_them = json.loads(one), json.loads(other)
        return bool(known.items() <= all_of_them.items())
    return bool(one == other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Looks at sessions; changes nothing."""

    audit: AuditStore
    chains: Chains
    journal: JournalStore

    async def verify(self, row: SessionRow) -> BrokenLink | None:
        """Return the first fault of a session's chain.

        Raises:
            KeyMissing: when the session's master key is not here.

        """
        try:
            walk = self.chains.walk(row.id, row.key)
        except Tampered as error:
            return BrokenLink(0, FaultOfChain.SEALED, str(error))
        async for page in pages(self.journal, row.id, row.head):
            await asyncio.to_thread(walk.take, page)
            if walk.broken is not None:
                break
        return walk.end(row.head, row.head_hash)

    async def examine(self, row: SessionRow) -> list[Finding]:
        """Return what does not hold of a session: its chain, its calls, its facts.

        Raises:
            KeyMissing: when the session's master key is not here.

        """
        try:
            walk = self.chains.walk(row.id, row.key)
        except Tampered as error:
            return [Finding(row.id, Invariant.CHAIN, f"the data key does not open: {error}")]
        reading = Reading(row.id)
        try:
            async for page in pages(self.journal, row.id, row.head):
                await asyncio.to_thread(_read, walk, reading, page)
                if walk.broken is not None:
                    break
        except (BrokenJournalError, UnreadableEventError, ValueError) as error:
            after = 0 if reading.state is None else reading.state.seq
            return [*reading.findings, Finding(row.id, Invariant.FOLD, str(error), after + 1)]
        broken = walk.end(row.head, row.head_hash)
        if broken is not None:
            detail = f"{broken.fault.value}: {broken.detail}"
            return [*reading.findings, Finding(row.id, Invariant.CHAIN, detail, broken.seq)]
        if walk.opens:
            reading.compare(row.facts)
        return reading.findings


def _read(walk: ChainWalk, reading: Reading, page: Sequence[SealedEvent]) -> None:
    reading.take(walk.take(page))


@dataclass(slots=True)
class Tally:
    """What a survey has looked at."""

    sessions: int = 0
    unopened: int = 0
    """Sessions whose master key is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Looks at all sessions, or some, without hurry and in bounded pages.

    What is found is looked at again a moment later, and told only if it is still so.
    """

    checkup: Checkup
    clock: Clock
    deep: bool = True
    recheck_s: float = RECHECK_S
    tally: Tally = field(default_factory=Tally)

    async def all(self) -> AsyncIterator[Finding]:
        """Yield what does not hold of any session."""
        after = ""
        while ids := await self.checkup.audit.after(after, SESSIONS):
            after = ids[-1]
            for finding in await self.of(ids):
                yield finding

    async def of(self, ids: Sequence[str]) -> list[Finding]:
        """Return what does not hold of these sessions."""
        found = await self._look(ids)
        self.tally.sessions += len(ids)
        if not found:
            return []
        before = {(one.session_id, one.invariant) for one in found}
        unopened = self.tally.unopened
        await self.clock.sleep(self.recheck_s)
        again = await self._look(sorted({one.session_id for one in found}))
        self.tally.unopened = unopened
        return [one for one in again if (one.session_id, one.invariant) in before]

    async def _look(self, ids: Sequence[str]) -> list[Finding]:
        found = await self.checkup.audit.check(ids, EVERY_EVENT)
        if self.deep:
            for session_id in ids:
                found += await self._examine(session_id)
        return found

    async def _examine(self, session_id: str) -> list[Finding]:
        row = await self.checkup.audit.row(session_id)
        if row is None:
            return []  # removed meanwhile
        try:
            return await self.checkup.examine(row)
        except KeyMissing:
            self.tally.unopened += 1
            return []
