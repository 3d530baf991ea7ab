"""Microseconds since the epoch, as the core counts them; as Python has times, and as the wire."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_US: Final = 1_000_000
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


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return to_time(seconds * _SECOND_US).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=256)
def _seconds(text: str) -> int:
    return to_us(datetime.fromisoformat(text + "+00:00"))


def rfc3339(at_us: int) -> str:
    """Return the time in UTC with microseconds, as the contract writes it."""
    seconds, micro = divmod(at_us, _SECOND_US)
    return f"{_second(seconds)}.{micro:06d}Z"


def from_rfc3339(text: str) -> int:
    """Return the microseconds of a time that `rfc3339` wrote."""
    seconds, _, micro = text.removesuffix("Z").partition(".")
    return _seconds(seconds) + int(micro)


def maybe_rfc3339(at_us: int | None) -> str | None:
    """Return the time as the contract writes it, if there is one."""
    return None if at_us is None else rfc3339(at_us)
