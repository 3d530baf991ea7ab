"""What a schedule is: its row, what it does, what came of it, and the port that keeps it."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Final, Protocol

from app.core.events import Policy
from app.runtime.errors import Tampered
from app.runtime.ports.keys import Keyring
from app.runtime.ports.sessions import Remember
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.idempotency import OURS
from app.runtime.side.timing import Missed, Timing
from app.runtime.times import rfc3339

MOST_RUNS: Final = 100
"""How many of its latest runs a schedule remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A message to a session that exists."""

    session_id: str
    text: str
    policy: Policy


Target = Wanted | Spoken
"""What a schedule does when it fires: create a session, or speak to one."""


class Outcome(StrEnum):
    """What came of a firing."""

    FIRED = "fired"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One firing that was due: made, refused, or left out with those up to the next."""

    due_us: int
    at_us: int
    outcome: Outcome
    session_id: str | None = None
    error: str | None = None
    by_hand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule. `content` is its sealed target; `version` grows with every change by a user.

    `next_us` is the next firing, or one that is due; None while it is paused or has none left.
    After a fault of the installation it is tried again from `retry_us` on.
    """

    id: str
    tenant: str
    name: str | None
    timing: Timing
    missed: Missed
    paused: bool
    session_id: str | None
    content: bytes
    version: int
    created_at_us: int
    updated_at_us: int
    next_us: int | None
    retry_us: int | None = None
    last_us: int | None = None
    last_session_id: str | None = None
    last_error: str | None = None

    def due(self, now_us: int) -> bool:
        """Return whether a firing is to be made."""
        waits = self.retry_us is not None and self.retry_us > now_us
        return not self.paused and not waits and self.next_us is not None and self.next_us <= now_us

    def firing(self, due_us: int) -> str:
        """Return the idempotency key of one firing: the same for whoever makes it."""
        return f"{OURS}{self.id}:{rfc3339(due_us)}"


def seal_target(keyring: Keyring, schedule_id: str, target: Target) -> bytes:
    """Return a target sealed, with the schedule it belongs to: elsewhere it does not open."""
    kind = "session" if isinstance(target, Wanted) else "message"
    content = {"id": schedule_id, "kind": kind, "target": asdict(target)}
    return keyring.seal_record(json.dumps(content, ensure_ascii=False).encode())


def open_target(keyring: Keyring, row: ScheduleRow) -> Target:
    """Return what a schedule does.

    Raises:
        Tampered: when the content was changed or belongs to another schedule.
        KeyMissing: when this process lacks its key.

    """
    content = json.loads(keyring.open_record(row.content))
    if content["id"] != row.id:
        raise Tampered("The content of a schedule belongs to another one.")
    target: dict[str, object] = content["target"]
    if content["kind"] == "message":
        return Spoken(**{**target, "policy": Policy(str(target["policy"]))})  # type: ignore[arg-type]
    known = {field.name for field in fields(Wanted)}
    wanted = Wanted(**{k: v for k, v in target.items() if k in known})  # type: ignore[arg-type]
    return replace(wanted, tools=None if wanted.tools is None else tuple(wanted.tools))


@dataclass(frozen=True, slots=True)
class Seen:
    """A schedule as it is now, by Postgres's clock."""

    row: ScheduleRow
    now_us: int


class LockedSchedule(Protocol):
    """A schedule locked in a transaction which commits when its block ends without error."""

    @property
    def seen(self) -> Seen:
        """Return the schedule as it is under the lock."""

    async def save(self, row: ScheduleRow) -> None:
        """Store it with these values as its next version."""

    async def delete(self) -> None:
        """Remove it with its runs."""

    async def forestall(self, record: Remember) -> bool:
        """Take the key of a firing so that nobody can make it; False when it was made already."""


class ScheduleStore(Protocol):
    """Schedules and their runs."""

    async def create(self, row: ScheduleRow) -> None:
        """Store a new schedule."""

    async def get(self, tenant: str, schedule_id: str) -> ScheduleRow | None:
        """Return a schedule."""

    async def page(self, tenant: str, *, after: str | None, limit: int) -> list[ScheduleRow]:
        """Return schedules, newest first, after the given id."""

    def locked(
        self, tenant: str, schedule_id: str
    ) -> AbstractAsyncContextManager[LockedSchedule | None]:
        """Lock a schedule for a moment; None when there is none of this tenant."""

    async def due(self, limit: int) -> Sequence[str]:
        """Return the ids of schedules with a firing to make, the longest waiting first."""

    async def find(self, schedule_id: str) -> Seen | None:
        """Return a schedule of any tenant."""

    async def advance(self, row: ScheduleRow, run: Run, next_us: int | None) -> bool:
        """Note a run and set the next firing; False, and only noted, when the schedule moved on."""

    async def postpone(self, row: ScheduleRow, error: str, wait_s: float) -> None:
        """Note a fault and try the same firing again later, unless the schedule moved on."""

    async def note(self, row: ScheduleRow, run: Run) -> None:
        """Note a run that was out of turn."""

    async def runs(self, schedule_id: str, limit: int) -> list[Run]:
        """Return the latest runs, newest first."""


def shown_target(target: Target) -> Mapping[str, object]:
    """Return a target as the API takes it."""
    if isinstance(target, Spoken):
        return {
            "session_id": target.session_id,
            "message": target.text,
            "when_busy": target.policy.value,
        }
    given = {k: v for k, v in asdict(target).items() if v is not None and k != "traceparent"}
    return {"session": given}
