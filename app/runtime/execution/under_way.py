"""The effects of one session that were begun and not answered yet, each in a task of its own."""

import asyncio
from collections.abc import Callable

from app.core.effects import CallModel, CallTool, Effect, PrepareTurn
from app.core.events import EffectClass
from app.core.inputs import Input
from app.core.lifecycle import StopReason
from app.core.plan import owed
from app.core.state import State
from app.runtime.errors import StoreUnavailable
from app.runtime.execution.desk import STORE_RETRY_S, Desk
from app.runtime.execution.lease import Hold
from app.runtime.execution.perform import LeaseInDoubtError, is_cancelled
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.workers import Claim
from app.runtime.streams.deltas import DeltaStream, Spawn


class StrayCancelError(Exception):
    """An adapter raised a cancellation which nobody asked for."""


class UnderWay:
    """Begins, carries out and cuts the effects of a claimed session.

    While `dropping`, nothing is begun but what would be worse left undone.
    """

    def __init__(
        self,
        desk: Desk,
        claim: Claim,
        hold: Hold,
        cipher: SessionCipher,
        answer: Callable[[Input | None], None],
    ) -> None:
        """Call `answer` with what came of each effect; with None when it is owed still."""
        self._desk = desk
        self._claim = claim
        self._hold = hold
        self._cipher = cipher
        self._answer = answer
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._in_doubt = False
        self.dropping = False

    def __bool__(self) -> bool:
        """Return whether any effect is under way."""
        return bool(self._tasks)

    def end(self) -> None:
        """Cut everything."""
        for task in self._tasks.values():
            task.cancel()

    def cut(self, state: State) -> None:
        """Cut what is owed no longer, before that is written: it must not reach anybody now."""
        if self._tasks:
            wanted = {effect.key: effect for effect in owed(state)}
            for key in list(self._tasks):
                if key not in wanted or self._idles(wanted[key], state):
                    self._tasks.pop(key).cancel()

    def missing(self, state: State) -> list[Effect]:
        """Return what is owed, was not begun, and may be."""
        wanted = {effect.key: effect for effect in owed(state)}
        return [
            effect
            for key, effect in wanted.items()
            if key not in self._tasks and self._may_begin(effect, state)
        ]

    async def begin(self, state: State, group: asyncio.TaskGroup) -> bool:
        """Begin what is owed and not begun; return whether the session is still ours."""
        if not self._hold.fresh() and self.missing(state) and not await self._still_ours():
            return False
        for effect in self.missing(state):  # fewer than before the wait, if we were dropped in it
            work = self._carry_out(effect, state, group.create_task)
            self._tasks[effect.key] = group.create_task(work)
        return True

    async def _still_ours(self) -> bool:
        """Wait until the lease is confirmed again; return whether nobody took over meanwhile.

        Without this an outage of Postgres would leave a `once` call that was decided in it, and
        never sent, to a person.
        """
        session_id, ours = self._claim.session_id, (self._claim.epoch, self._desk.worker)
        while not self._hold.fresh():
            await self._desk.lease.until_fresh()
            hold = self._desk.lease.hold()
            try:
                found = (await self._desk.journal.heads([session_id])).get(session_id)
            except StoreUnavailable:
                await self._desk.clock.sleep(STORE_RETRY_S)
                continue
            if found is None or (found.epoch, found.owner) != ours:
                return False
            self._hold = hold
        return True

    def _may_begin(self, effect: Effect, state: State) -> bool:
        if not self.dropping:
            return True
        if isinstance(effect, PrepareTurn):  # a turn cancelled before it began, begins and ends
            return state.stopping is StopReason.CANCELLED
        once = isinstance(effect, CallTool) and effect.call.effect is EffectClass.ONCE
        return once and not self._in_doubt

    def _idles(self, effect: Effect, state: State) -> bool:
        """Return whether a dropped session's effect only waits for its next attempt."""
        if self._may_begin(effect, state) or isinstance(effect, PrepareTurn):
            return False
        return effect.not_before_us > max(self._desk.clock.now_us(), state.at_us)

    async def _carry_out(self, effect: Effect, state: State, spawn: Spawn) -> None:
        given: Input | None = None
        try:
            given = await self._performed(effect, state, spawn)
        except LeaseInDoubtError:
            self._in_doubt = self.dropping = True
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise StrayCancelError(effect.key) from error
        except StoreUnavailable:
            await self._desk.clock.sleep(STORE_RETRY_S)  # nothing was sent; it is owed still
        self._tasks.pop(effect.key, None)
        self._answer(given)

    async def _performed(self, effect: Effect, state: State, spawn: Spawn) -> Input:
        perform = self._desk.performer.perform
        if not isinstance(effect, CallModel):
            return await perform(self._claim.tenant, state, effect, _nobody, self._hold.fresh)
        deltas = DeltaStream(
            hub=self._desk.hub, cipher=self._cipher, state=state, effect=effect, spawn=spawn
        )
        try:
            given = await perform(self._claim.tenant, state, effect, deltas, self._hold.fresh)
            await deltas.flush()
        finally:
            deltas.stop()
        return given


def _nobody(_text: str) -> None:
    """Take a delta that no model call can make."""
