"""Microseconds since the epoch, as the core counts them, and the times that Postgres keeps."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_time(at_us: int) -> datetime:
    """Return the time; exact, which a float of seconds would not be."""
    return EPOCH + timedelta(microseconds=at_us)


def to_us(time: datetime) -> int:
    """Return the microseconds of a time."""
    return (time - EPOCH) // _MICROSECOND


def maybe_time(at_us: int | None) -> datetime | None:
    """Return the time, if there is one."""
    return None if at_us is None else to_time(at_us)


def maybe_us(time: datetime | None) -> int | None:
    """Return the microseconds, if there are any."""
    return None if time is None else to_us(time)
