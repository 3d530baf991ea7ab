"""Firing schedules: the side job that does it when they are due, and what both ways share.

The session is created, or spoken to, under the idempotency key `schedule:<id>:<due time>` by the
use case which the API calls. So two workers at once, or one that dies between the firing and the
note of it, make one session: the second way round finds the first answer under the key.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.keys import Keyring
from app.runtime.ports.sessions import Remember, SessionStore
from app.runtime.refusals import Overloaded, Refused
from app.runtime.sessions.creation import Creation, Wanted
from app.runtime.sessions.idempotency import GONE, Answer, Attempt
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.jobs import OF_OUR_OWN
from app.runtime.side.schedule_records import (
    Outcome,
    Run,
    ScheduleRow,
    ScheduleStore,
    Seen,
    Target,
    open_target,
)
from app.runtime.side.timing import to_fire
from app.runtime.times import rfc3339

SCHEDULE_KEY: Final = "surefoot.schedule"
DUE_KEY: Final = "surefoot.due_at"
"""Metadata of a session that a schedule made: whose it is, and for when."""

AT_ONCE: Final = 10
"""How many firings of one schedule a job makes; what is left is due again."""
AFTER_FAULT_S: Final = 60.0
WHILE_FULL_S: Final = 10.0
_MOST_TEXT: Final = 1000
_ROUTE: Final = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Does what a schedule says."""

    creation: Creation
    sessions: Sessions

    async def make(
        self, row: ScheduleRow, target: Target, due_us: int, attempt: Attempt | None
    ) -> tuple[Answer, str]:
        """Create the session, or speak to it; return the answer and the session's id.

        Raises:
            Refused: as the same request over HTTP would be.

        """
        if isinstance(target, Wanted):
            marks = {SCHEDULE_KEY: row.id, DUE_KEY: rfc3339(due_us)}
            wanted = replace(target, metadata={**(target.metadata or {}), **marks})
            answer = await self.creation.create(row.tenant, wanted, attempt)
            return answer, answer.session_id or str(json.loads(answer.body)["id"])
        answer = await self.sessions.message(
            row.tenant, target.session_id, target.text, target.policy, attempt
        )
        return answer, target.session_id


def _attempt(row: ScheduleRow, due_us: int) -> Attempt:
    """Return the attempt of a firing; what the schedule says is no part of it, only when."""
    key = row.firing(due_us)
    return Attempt.of(row.tenant, key, _ROUTE, key.encode())


def forestalled(keyring: Keyring, row: ScheduleRow, due_us: int) -> Remember:
    """Return the record under which a firing can be made no more."""
    return _attempt(row, due_us).record(keyring, GONE, b"", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """The side job: each due firing of each schedule, by its rule for missed ones."""

    keyring: Keyring
    store: ScheduleStore
    sessions: SessionStore
    firing: Firing
    log: Callable[..., None]
    name: str = "schedules"
    parallel: int = OF_OUR_OWN

    async def due(self, limit: int) -> Sequence[str]:
        """Return the schedules with a firing to make."""
        return await self.store.due(limit)

    async def run(self, job_id: str) -> None:
        """Make what is due of one schedule. A fault is noted in its row and holds up no other."""
        for _ in range(AT_ONCE):
            seen = await self.store.find(job_id)
            if seen is None or not seen.row.due(seen.now_us):
                return
            try:
                await self._step(seen)
            except StoreUnavailable:
                raise  # nothing could be noted; it is due as before
            except Overloaded as full:  # as a client would, it comes again
                await self._postpone(seen.row, full, WHILE_FULL_S)
            except Exception as error:  # noqa: BLE001 - not the schedule's fault: kept, tried later
                await self._postpone(seen.row, error)

    async def _step(self, seen: Seen) -> None:
        """Make the firing that is due, or go on to the one that stands for it."""
        row = seen.row
        due_us = row.next_us or 0
        known = await self.sessions.recall(row.tenant, row.firing(due_us))
        if known is None:
            first = to_fire(row.timing, due_us, seen.now_us, row.missed)
            if first != due_us:
                await self._leave_out(seen, due_us, first)
                return
        run = await self._made(row, due_us, seen.now_us)
        next_us = row.timing.after(due_us)
        await self.store.advance(row, run, next_us)

    async def _made(self, row: ScheduleRow, due_us: int, now_us: int) -> Run:
        try:
            target = open_target(self.keyring, row)
            attempt = _attempt(row, due_us)
            answer, session_id = await self.firing.make(row, target, due_us, attempt)
        except Overloaded:
            raise
        except Refused as refused:
            error = _text(refused)
            self.log("schedule.refused", level="warning", schedule=row.id, why=error)
            return Run(due_us=due_us, at_us=now_us, outcome=Outcome.FAILED, error=error)
        self.log("schedule.fired", schedule=row.id, session_id=session_id, again=answer.replayed)
        return Run(due_us=due_us, at_us=now_us, outcome=Outcome.FIRED, session_id=session_id)

    async def _leave_out(self, seen: Seen, due_us: int, first_us: int | None) -> None:
        """Go on to a later firing before it is made: its own time is then in its key."""
        row = seen.row
        if first_us is None:
            first_us = row.timing.after(seen.now_us)
        until = "the last" if first_us is None else f"that of {rfc3339(first_us)}"
        error = f"Missed: nobody ran. Left out from here on, up to {until}."
        run = Run(due_us=due_us, at_us=seen.now_us, outcome=Outcome.SKIPPED, error=error)
        await self.store.advance(row, run, first_us)

    async def _postpone(
        self, row: ScheduleRow, error: Exception, wait_s: float = AFTER_FAULT_S
    ) -> None:
        text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
        level = "warning" if isinstance(error, Overloaded) else "error"
        self.log("schedule.failed", level=level, schedule=row.id, why=text)
        await self.store.postpone(row, text, wait_s)


def _text(refused: Refused) -> str:
    parts = [refused.detail, *(f"{e.pointer}: {e.message}" for e in refused.errors)]
    return " ".join(parts)[:_MOST_TEXT]
