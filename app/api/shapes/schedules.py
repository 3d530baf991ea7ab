"""Schedules as clients send and receive them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, RootModel, model_validator

from app.api.shapes.bodies import Body, MessageIn, Name, SessionIn, Text
from app.api.shapes.common import Json, Shape, Time
from app.api.shapes.sessions import ReceiptOut, SessionOut
from app.core.events import Policy
from app.runtime.refusals import FieldFault, Invalid, NotSupported
from app.runtime.side.schedule_records import Run, ScheduleRow, Spoken, Target, shown_target
from app.runtime.side.schedules import Asked
from app.runtime.side.timing import Missed, TimingError, read_timing
from app.runtime.times import maybe_rfc3339, rfc3339


class ScheduleIn(Body):
    """When to do what: one of `cron` and `at`, and one of `session` and `session_id`."""

    name: Name | None = None
    cron: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=256,
                description="Five fields: minute, hour, day of month, month, weekday.",
            ),
        ]
        | None
    ) = None
    at: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=64,
                description="RFC 3339; without an offset, as the clock in `timezone` shows it.",
            ),
        ]
        | None
    ) = None
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    session: SessionIn | None = None
    session_id: Name | None = None
    message: Text | None = None
    when_busy: Literal["reject", "enqueue", "interrupt", "steer"] = "enqueue"
    missed: Literal["skip", "once", "all"] = "once"
    paused: bool = False

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.cron is None) == (self.at is None):
            raise ValueError("give one of cron and at")
        if (self.session is None) == (self.session_id is None):
            raise ValueError("give one of session, and session_id with a message")
        if (self.message is None) != (self.session_id is None):
            raise ValueError("message and session_id go together")
        return self

    def asked(self, now_us: int) -> Asked:
        """Return the schedule that is wanted.

        Raises:
            Invalid: when its time cannot be read, or never comes.
            NotSupported: naming what this release has not.

        """
        try:
            timing = read_timing(self.cron, self.at, self.timezone, now_us)
        except TimingError as error:
            fault = FieldFault(f"/{error.field}", str(error))
            raise Invalid("The schedule cannot be kept.", fault) from None
        return Asked(
            name=self.name,
            timing=timing,
            missed=Missed(self.missed),
            paused=self.paused,
            target=self._target(),
        )

    def _target(self) -> Target:
        if self.session is not None:
            try:
                self.session.check_built()
            except NotSupported as refused:
                moved = (replace(e, pointer=f"/session{e.pointer}") for e in refused.errors)
                raise NotSupported(refused.detail, *moved) from refused
            return self.session.wanted()
        message = MessageIn(text=self.message or "", when_busy=self.when_busy)
        return Spoken(
            session_id=self.session_id or "", text=message.text, policy=Policy(self.when_busy)
        )


class ScheduleOut(Shape):
    """A schedule: beside what was asked for, when it fires next and what came of the last time."""

    id: str
    object: Literal["schedule"]
    name: str | None
    cron: str | None
    at: Time | None
    timezone: str
    missed: Literal["skip", "once", "all"]
    paused: bool
    next_at: Annotated[Time | None, Field(description="Null while paused, or when none is left.")]
    last_at: Time | None
    last_session_id: str | None
    last_error: str | None
    version: int
    created_at: Time
    updated_at: Time
    session: Json | None = None
    session_id: str | None = None
    message: str | None = None
    when_busy: str | None = None


class ScheduleList(Shape):
    """A page of schedules, newest first."""

    data: list[ScheduleOut]
    next: str | None


class RunOut(Shape):
    """One firing: `skipped` stands for all that were left out from `due_at` on."""

    due_at: Time
    at: Time
    outcome: Literal["fired", "failed", "skipped"]
    session_id: str | None
    error: str | None
    by_hand: bool


class RunList(Shape):
    """The latest runs, newest first."""

    data: list[RunOut]
    next: None


class FiredOut(RootModel[SessionOut | ReceiptOut]):
    """The session that was created, or the receipt of the message."""


def schedule_json(row: ScheduleRow, target: Target | None) -> Mapping[str, object]:
    """Return a schedule as clients see it; `target` None when its content does not open here."""
    shown: dict[str, object] = {
        "id": row.id,
        "object": "schedule",
        "name": row.name,
        "cron": row.timing.cron,
        "at": maybe_rfc3339(row.timing.at_us),
        "timezone": row.timing.timezone,
        "missed": row.missed,
        "paused": row.paused,
        "next_at": maybe_rfc3339(row.next_us),
        "last_at": maybe_rfc3339(row.last_us),
        "last_session_id": row.last_session_id,
        "last_error": row.last_error,
        "version": row.version,
        "created_at": rfc3339(row.created_at_us),
        "updated_at": rfc3339(row.updated_at_us),
    }
    return {**shown, **({"unreadable": True} if target is None else shown_target(target))}


def run_json(run: Run) -> Mapping[str, object]:
    """Return a run as clients see it."""
    return {
        "due_at": rfc3339(run.due_us),
        "at": rfc3339(run.at_us),
        "outcome": run.outcome,
        "session_id": run.session_id,
        "error": run.error,
        "by_hand": run.by_hand,
    }
