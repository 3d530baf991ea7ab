"""When a schedule fires: pure arithmetic over cron expressions, time zones and times given.

Cron is Debian's, its five fields and its ways around a change of the clocks. A job at a fixed hour
and minute runs once a day: one whose time is left out in spring runs as soon as the clocks have
moved on, one whose time comes twice in autumn runs the first time. A job with `*` in its minute or
hour goes by real time, whatever the clocks show.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from app.runtime.times import to_time, to_us

GRACE_US: Final = 60_000_000
"""What fires less than this late was not missed: workers poll, restart and are rolled."""

MOST_MISSED: Final = 100
"""How many missed firings are made up for, at most, the latest ones."""

_FIELDS: Final = 5
_WINDOWS: Final = tuple(
    timedelta(hours=hours) for hours in (1, 24, 32 * 24, 366 * 24, 9 * 366 * 24, 60 * 366 * 24)
)
_FAR_US: Final = 7_258_118_400_000_000
"""The year 2200: beyond it no clock's changes are known."""
_NO_NAME: Final = re.compile(r"(?i)localtime|posixrules|factory|(?:posix|right)/.*")
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")


class TimingError(ValueError):
    """A time that cannot be; `field` names what is at fault: `cron`, `at` or `timezone`."""

    def __init__(self, field: str, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.field = field


class Missed(StrEnum):
    """What becomes of firings that nobody made in time."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule fires: by a cron expression in a time zone, or at one moment."""

    cron: str | None = None
    at_us: int | None = None
    timezone: str = "UTC"

    def after(self, moment_us: int) -> int | None:
        """Return the first firing after a moment; None when there is none."""
        if self.cron is None:
            return self.at_us if self.at_us is not None and self.at_us > moment_us else None
        return next(self._from(to_time(moment_us)), None)

    def _from(self, moment: datetime) -> Iterator[int]:
        """Yield the firings after a moment, each once and in order.

        Around a change of the clocks the simulator may name a time before the one it was asked
        from, or one time twice: a wall clock alone doesn't tell which of two hours is meant.
        """
        zone = _zone(self.timezone)
        last_us = to_us(moment)
        for found in CronSim(self.cron or "", moment.astimezone(zone)):
            found_us = to_us(found)
            if found_us > last_us:
                last_us = found_us
                yield found_us

    def latest(self, first_us: int, until_us: int, most: int) -> list[int]:
        """Return the last `most` firings from `first_us`, which is one, to `until_us`.

        They are looked for in growing stretches before the end: years of missed minutes cost no
        more than an hour of them.
        """
        if self.cron is None:
            return [first_us]
        end = to_time(until_us)
        for window in _WINDOWS:
            start = max(to_time(first_us), end - window)
            found = [first_us] if start == to_time(first_us) else []
            for at_us in self._from(start):
                if at_us > until_us:
                    break
                found.append(at_us)
            if len(found) >= most or start == to_time(first_us):
                return found[-most:]
        return [first_us]  # none since: the windows cover more than the longest gap there can be


def to_fire(timing: Timing, due_us: int, now_us: int, missed: Missed) -> int | None:
    """Return which firing is to be made now, of those from `due_us` to now; None: none of them."""
    match missed:
        case Missed.ALL:
            return timing.latest(due_us, now_us, MOST_MISSED)[0]
        case Missed.ONCE:
            return timing.latest(due_us, now_us, 1)[0]
        case Missed.SKIP:
            last = timing.latest(due_us, now_us, 1)[0]
            return last if now_us - last < GRACE_US else None


def read_timing(cron: str | None, at: str | None, timezone: str, now_us: int) -> Timing:
    """Return the timing that was asked for; one of `cron` and `at` is given.

    Raises:
        TimingError: when it cannot be read, or would never fire from now on.

    """
    zone = _named_zone(timezone)
    if at is not None:
        return Timing(at_us=_moment(at, zone), timezone=timezone)
    cron = " ".join((cron or "").split())
    if len(cron.split()) != _FIELDS:
        message = "A cron expression has five fields: minute, hour, day of month, month, weekday."
        raise TimingError("cron", message)
    timing = Timing(cron=cron, timezone=timezone)
    try:
        first = timing.after(now_us)
    except CronSimError as error:
        raise TimingError("cron", f"Not a cron expression: {str(error).lower()}.") from None
    if first is None:
        raise TimingError("cron", "No day in the next 50 years fits this expression.")
    return timing


def _named_zone(name: str) -> tzinfo:
    """Return a zone by its name in the IANA database.

    Beside those, the folder of zones holds files that are none: the machine's own zone, zones that
    count leap seconds. What they mean differs from one machine to the next.
    """
    if _NO_NAME.fullmatch(name):
        message = f"{name[:64]!r} is no IANA name of a time zone; use one such as Europe/Berlin."
        raise TimingError("timezone", message)
    return _zone(name)


def _zone(name: str) -> tzinfo:
    """Return a zone; only names that cannot leave the folder of zones are looked up."""
    if name == "UTC":
        return UTC
    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        pass
    message = f"The time zone {name[:64]!r} is not known; use an IANA name such as Europe/Berlin."
    raise TimingError("timezone", message)


def _moment(text: str, zone: tzinfo) -> int:
    """Return the moment of an RFC 3339 time; one without an offset is the zone's wall clock.

    Of a time that comes twice the first is meant; one that the clocks leave out is as much later
    as they are moved.
    """
    try:
        found = datetime.fromisoformat(text)
        at_us = to_us(found if found.tzinfo is not None else found.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        message = "Not a time; write it as 2027-03-01T09:00:00, with Z or +02:00 if you like."
        raise TimingError("at", message) from None
    if not 0 <= at_us < _FAR_US:
        raise TimingError("at", "The time must lie before the year 2200.")
    return at_us
