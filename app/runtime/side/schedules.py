"""The use cases of schedules, as the API calls them.

A firing that is due and not made yet belongs to the schedule as it was: whoever changes, pauses or
deletes it takes that firing's idempotency key in the same transaction. So once he has his answer,
no worker, however slow, makes a session out of what the schedule said before.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from app.core import ids
from app.runtime.ports.keys import Keyring
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionStore
from app.runtime.refusals import FieldFault, Invalid, NotFound
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.side.firing import Firing, forestalled
from app.runtime.side.schedule_records import (
    LockedSchedule,
    Outcome,
    Run,
    ScheduleRow,
    ScheduleStore,
    Target,
    open_target,
    seal_target,
)
from app.runtime.side.timing import Missed, Timing, to_fire

MARGIN_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A schedule as a user wants it."""

    name: str | None
    timing: Timing
    missed: Missed
    paused: bool
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """The use cases. One for the whole process."""

    clock: Clock
    keyring: Keyring
    store: ScheduleStore
    sessions: SessionStore
    firing: Firing

    async def create(self, tenant: str, asked: Asked) -> ScheduleRow:
        """Store a schedule.

        Raises:
            Invalid: when what it would do is refused today, or its time has passed.

        """
        await self._check(tenant, asked.target)
        now = self.clock.now_us()
        schedule_id = ids.mint("sch", at_us=now, entropy=self.clock.entropy(10))
        first = _coming(asked.timing, now)
        row = ScheduleRow(
            id=schedule_id,
            tenant=tenant,
            name=asked.name,
            timing=asked.timing,
            missed=asked.missed,
            paused=asked.paused,
            session_id=_spoken_to(asked.target),
            content=seal_target(self.keyring, schedule_id, asked.target),
            version=1,
            created_at_us=now,
            updated_at_us=now,
            next_us=None if asked.paused else first,
        )
        await self.store.create(row)
        return row

    async def get(self, tenant: str, schedule_id: str) -> ScheduleRow:
        """Return a schedule.

        Raises:
            NotFound: when there is none of this tenant.

        """
        row = await self.store.get(tenant, schedule_id)
        if row is None:
            raise NotFound("schedule", schedule_id)
        return row

    async def change(self, tenant: str, schedule_id: str, asked: Asked) -> ScheduleRow:
        """Replace a schedule; where its times stay, what is due is made by what it says now.

        Raises:
            Invalid: when what it would do is refused today, or its time has passed.

        """
        await self._check(tenant, asked.target)
        async with self._locked(tenant, schedule_id) as locked:
            row, now = locked.seen.row, locked.seen.now_us
            withheld = await self._forestall(locked)
            due = row.next_us or now
            next_us: int | None
            if asked.timing != row.timing or row.paused:
                next_us = _coming(asked.timing, now)
            elif withheld and to_fire(row.timing, due, now, asked.missed) is not None:
                next_us = max(now, due + 1)  # another time is another key
            elif row.next_us is not None and row.next_us > now:
                next_us = row.next_us
            else:
                next_us = asked.timing.after(now)
            changed = replace(
                row,
                name=asked.name,
                timing=asked.timing,
                missed=asked.missed,
                paused=asked.paused,
                session_id=_spoken_to(asked.target),
                content=seal_target(self.keyring, row.id, asked.target),
            )
            return await _saved(locked, changed, None if asked.paused else next_us)

    async def delete(self, tenant: str, schedule_id: str) -> None:
        """Remove a schedule; the sessions it made stay."""
        async with self._locked(tenant, schedule_id) as locked:
            await self._forestall(locked)
            await locked.delete()

    async def pause(self, tenant: str, schedule_id: str) -> ScheduleRow:
        """Let it fire no more until it is resumed."""
        async with self._locked(tenant, schedule_id) as locked:
            row = locked.seen.row
            if row.paused:
                return row
            await self._forestall(locked)
            return await _saved(locked, replace(row, paused=True), None)

    async def resume(self, tenant: str, schedule_id: str) -> ScheduleRow:
        """Let it fire again from now on; nothing of the pause counts as missed."""
        async with self._locked(tenant, schedule_id) as locked:
            row = locked.seen.row
            if not row.paused:
                return row
            next_us = row.timing.after(locked.seen.now_us)
            return await _saved(locked, replace(row, paused=False), next_us)

    async def fire(self, tenant: str, schedule_id: str, attempt: Attempt | None) -> Answer:
        """Do now what the schedule does, out of turn, paused or not."""
        row = await self.get(tenant, schedule_id)
        now = self.clock.now_us()
        target = open_target(self.keyring, row)
        answer, session_id = await self.firing.make(row, target, now, attempt)
        if not answer.replayed:
            run = Run(
                due_us=now,
                at_us=now,
                outcome=Outcome.FIRED,
                session_id=session_id,
                by_hand=True,
            )
            await self.store.note(row, run)
        return answer

    async def _check(self, tenant: str, target: Target) -> None:
        if isinstance(target, Wanted):
            try:
                await self.firing.creation.check(tenant, target)
            except Invalid as refused:
                moved = (replace(e, pointer=f"/session{e.pointer}") for e in refused.errors)
                raise Invalid(refused.detail, *moved) from refused
        elif await self.sessions.get(tenant, target.session_id) is None:
            fault = FieldFault("/session_id", f"There is no session {target.session_id!r}.")
            raise Invalid("The session is not known.", fault)

    async def _forestall(self, locked: LockedSchedule) -> bool:
        """Take a firing that is due away from the workers; False when none was, or it was made.

        Also one that becomes due at this moment: a worker may see it before this is committed.
        """
        row, soon = locked.seen.row, locked.seen.now_us + MARGIN_US
        if row.next_us is None or row.next_us > soon:
            return False
        return await locked.forestall(forestalled(self.keyring, row, row.next_us))

    @asynccontextmanager
    async def _locked(self, tenant: str, schedule_id: str) -> AsyncIterator[LockedSchedule]:
        async with self.store.locked(tenant, schedule_id) as locked:
            if locked is None:
                raise NotFound("schedule", schedule_id)
            yield locked


async def _saved(locked: LockedSchedule, row: ScheduleRow, next_us: int | None) -> ScheduleRow:
    changed = replace(
        row,
        version=row.version + 1,
        updated_at_us=locked.seen.now_us,
        next_us=next_us,
        retry_us=None,
        last_error=None,
    )
    await locked.save(changed)
    return changed


def _spoken_to(target: Target) -> str | None:
    return None if isinstance(target, Wanted) else target.session_id


def _coming(timing: Timing, now_us: int) -> int:
    """Return the first firing to come.

    Raises:
        Invalid: when there is none: its time has passed.

    """
    first = timing.after(now_us)
    if first is None:
        fault = FieldFault("/at", "This time has passed; to do it now, POST …/fire.")
        raise Invalid("The schedule would never fire.", fault)
    return first
