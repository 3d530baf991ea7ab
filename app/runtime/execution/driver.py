"""The driver: one session, from its claim to its release.

    load (fold the journal) → decide → append → perform what is owed → decide …

It holds no truth: whatever it knows beyond the journal may be lost at any await. Its order is
always the same: events are durable before the effects that follow from them are begun. Only pure
functions are computed before, since nobody could notice (ADR 017).
"""

import asyncio
from collections import deque
from typing import Final

from app.core.events import Event, SessionClaimed
from app.core.inputs import (
    Claimed,
    Input,
    ModelFaulted,
    ModelReturned,
    StatusChecked,
    TimerRang,
    ToolFaulted,
    ToolReturned,
)
from app.core.machine import decide
from app.core.plan import Rest, due_timer, owed, resting, time_left_us
from app.core.state import State
from app.runtime.errors import StoreUnavailable
from app.runtime.execution.copies import Copies
from app.runtime.execution.desk import STORE_RETRY_S, Desk
from app.runtime.execution.lease import Hold
from app.runtime.execution.under_way import UnderWay
from app.runtime.inbox import read_inbox
from app.runtime.ports.journal import Append, Appended, Fate, Release, SealedEvent
from app.runtime.ports.live import LiveEvent
from app.runtime.ports.workers import Claim
from app.runtime.sealing import Sealer
from app.runtime.views import facts_of, view_of

_US: Final = 1_000_000
_ANSWERS: Final = (ModelReturned, ModelFaulted, ToolReturned, ToolFaulted, StatusChecked)


class StuckError(Exception):
    """A state that owes nothing and may not rest: a fault of the machine, never of a user."""


class Driver:
    """Runs one claimed session. `released` says that its last append let it go."""

    def __init__(self, desk: Desk, claim: Claim, hold: Hold, state: State, sealer: Sealer) -> None:
        """Take a claim, the hold on the lease under which it was made, and its folded state."""
        self._desk = desk
        self._claim = claim
        self._state = state
        self._sealer = sealer
        self._cipher = sealer.cipher
        self._copies = Copies(desk.hot, desk.journal, sealer)
        self._saved = state
        self._head = claim.head
        self._head_hash = claim.head_hash
        self._inbox_seen = claim.inbox_seen
        self._unsaved: list[Event] = []
        self._untold: deque[tuple[State, tuple[Event, ...], State]] = deque()
        self._answered = False
        self._rang_us = 0
        self._inputs: deque[Input] = deque()
        self._wake = asyncio.Event()
        self._under_way = UnderWay(desk, claim, hold, sealer.cipher, self._answer)
        self._look = claim.inbox_head > claim.inbox_seen
        self.released = False

    @property
    def session_id(self) -> str:
        """Return the session's id."""
        return self._claim.session_id

    @property
    def epoch(self) -> int:
        """Return the fencing token under which this driver writes."""
        return self._claim.epoch

    @property
    def poked(self) -> bool:
        """Return whether the inbox was not looked into since the last poke."""
        return self._look

    def poke(self) -> None:
        """Say that the inbox may hold something."""
        self._look = True
        self._wake.set()

    def drop(self) -> None:
        """Begin no further effect; what is in flight is still offered to the journal.

        What was said to the session is taken all the same, and a turn that it cancels ends. Only a
        `once` call whose intent was just written is still sent, while the lease is fresh: left
        unsent, a successor would have to take it for one that may have happened.
        """
        self._under_way.dropping = True
        self._wake.set()

    async def run(self) -> None:
        """Drive the session until it is released, fenced or dropped."""
        try:
            async with asyncio.TaskGroup() as group:
                self._begin()
                while await self._round(group):
                    pass
                self._under_way.end()
        finally:
            self._tell()

    def _begin(self) -> None:
        now = self._desk.clock.now_us()
        lease_us = self._desk.lease.lease_us
        rest = None if self._claim.rang_us is None else resting(self._state)
        self._rang_us = 0 if rest is None or rest.timer_us is None else rest.timer_us
        self._take(Claimed(now, self._desk.worker, self._claim.epoch, lease_us))

    async def _round(self, group: asyncio.TaskGroup) -> bool:
        """Take what came, write what follows, begin what is owed; return whether to go on."""
        if self._look:
            await self._read_inbox()
        while self._inputs:
            self._take(self._inputs.popleft())
        before_ring = self._ring()
        await self._compute()
        self._under_way.cut(self._state)
        if not await self._save(before_ring):
            return False
        if self._look or self._inputs:
            return True
        if not await self._under_way.begin(self._state, group):
            return False
        asyncio.get_running_loop().call_soon(self._tell)
        if self._under_way.dropping and not self._under_way:
            return False
        await self._wait()
        return True

    def _ring(self) -> tuple[State, int] | None:
        """Take a timer that is due, after everything that was said before it was looked at.

        One that Postgres rang is due whatever this machine's clock says. Return what was before
        it: the state, and how many events were unsaved.
        """
        if self._look:
            return None
        at_us = max(self._desk.clock.now_us(), self._rang_us)
        timer = due_timer(self._state, at_us)
        if timer is None:
            return None
        before = self._state, len(self._unsaved)
        self._take(TimerRang(at_us, timer))
        return before

    def _unring(self, before: tuple[State, int]) -> None:
        """Take a timer back: something was said in time, and was not looked at."""
        self._state, kept = before
        del self._unsaved[kept:]
        self._look = True

    async def _compute(self) -> None:
        """Answer the calls of pure functions before anything is written (ADR 017).

        Nobody outside can notice such a call, so that neither its intent nor its result has to be
        durable by itself; what failed to be computed here is performed like every other call.
        """
        performer = self._desk.performer
        while pure := [e for e in self._under_way.missing(self._state) if performer.is_pure(e)]:
            for effect in pure:
                try:
                    given = await performer.compute(self._claim.tenant, self._state, effect)
                except StoreUnavailable:
                    return
                self._take(given)
                await self._desk.clock.sleep(0)  # a hundred of them are no reason to block others

    def _answer(self, given: Input | None) -> None:
        """Hear of an effect that is under way no more, and what came of it."""
        if given is not None:
            self._inputs.append(given)
        self._wake.set()

    def _take(self, given: Input) -> None:
        decision = decide(self._state, given)
        self._state = decision.state
        self._unsaved.extend(decision.events)
        if decision.events and isinstance(given, _ANSWERS):
            self._answered = True

    async def _read_inbox(self) -> None:
        self._look = False
        try:
            rows = await self._desk.sessions.inbox(self.session_id, self._inbox_seen)
        except StoreUnavailable:
            self._look = True
            await self._desk.clock.sleep(STORE_RETRY_S)
            return
        now = self._desk.clock.now_us()
        for row in rows:
            self._inbox_seen = row.n
            self._inputs.append(read_inbox(row, self._cipher, now))

    async def _save(self, before_ring: tuple[State, int] | None) -> bool:
        """Append what is decided; return False when the session is no longer ours to drive."""
        rest = resting(self._state)
        only_claimed = all(isinstance(e.body, SessionClaimed) for e in self._unsaved)
        if rest is None and not owed(self._state):
            message = f"Session {self.session_id} owes nothing in phase {self._state.phase}."
            raise StuckError(message)
        if rest is None and only_claimed:
            return True  # the claim rides in the next append, never in one of its own
        events = () if only_claimed else tuple(self._unsaved)
        appended = await self._append(events, rest, unless_behind=before_ring is not None)
        if appended.fate is Fate.BEHIND and before_ring is not None:
            self._unring(before_ring)
            return True
        if appended.fate is not Fate.WRITTEN or appended.released:
            return False
        self._look = self._look or appended.inbox_head > self._inbox_seen
        return True

    async def _append(
        self, events: tuple[Event, ...], rest: Rest | None, *, unless_behind: bool
    ) -> Appended:
        state = self._state
        sealed = self._sealer.seal(events, self._head_hash, state)
        shown = state.ended != self._saved.ended or state.pending != self._saved.pending
        view = self._sealer.view(view_of(state)) if shown else None
        entry = Append(
            session_id=self.session_id,
            epoch=self._claim.epoch,
            expected_head=self._head,
            head=sealed[-1].seq if sealed else self._head,
            head_hash=sealed[-1].hash if sealed else self._head_hash,
            events=sealed,
            facts=facts_of(state),
            inbox_seen=self._inbox_seen,
            answered=self._answered or rest is not None,  # nor does it kill who comes to rest
            release=None if rest is None else Release(rest.timer_us, self._now_us()),
            view=view,
            unless_behind=unless_behind,
        )
        appended = await self._desk.writer.append(entry)
        if appended.fate is Fate.WRITTEN:
            self.released = appended.released
            if rest is not None or (shown and state.ended is not None):
                self._desk.hub.rested(self.session_id)
            if events:
                await self._written(events, sealed, rest)
        return appended

    async def _written(
        self, events: tuple[Event, ...], sealed: tuple[SealedEvent, ...], rest: Rest | None
    ) -> None:
        """Go on from here, tell readers, and keep copies where the design wants them."""
        before, after = self._saved, self._state
        self._untold.append((before, events, after))
        self._saved = after
        self._head, self._head_hash = sealed[-1].seq, sealed[-1].hash
        self._answered = False
        del self._unsaved[: len(events)]
        if self._desk.hub.followed(self.session_id):
            live = [LiveEvent(self.session_id, e.seq, e.payload, e.type) for e in sealed]
            await self._desk.hub.publish(live)
        await self._copies.keep(before.seq, after, at_rest=rest is not None)

    def _tell(self) -> None:
        """Tell the observer what is durable: after the effects that follow from it were begun.

        So its work is done while the other side does theirs.
        """
        while self._untold:
            self._desk.observer.committed(*self._untold.popleft())

    def _now_us(self) -> int:
        """Return the session's time: it never goes back, though its next owner's clock may."""
        return max(self._desk.clock.now_us(), self._state.at_us)

    async def _wait(self) -> None:
        """Wait for an answer, a poke, or the end of the turn's active time."""
        now = self._desk.clock.now_us()
        left = time_left_us(self._state, now)
        try:
            async with asyncio.timeout(None if left is None else left / _US):
                await self._wake.wait()
        except TimeoutError:
            self._inputs.append(TimerRang(self._desk.clock.now_us(), "total_timeout"))
        self._wake.clear()
