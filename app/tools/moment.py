"""The built-in `now`: the time in a time zone."""

import difflib
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from app.core.canonical import Json

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)


class ZoneError(ValueError):
    """The time zone is not known."""


def moment(now_us: int, zone: str) -> dict[str, Json]:
    """Return a time as RFC 3339 in a zone, with the zone's name and the day of the week.

    Raises:
        ZoneError: when the zone is not known, with names that are like it.

    """
    local = datetime.fromtimestamp(now_us // 1_000_000, tz=_zone(zone))
    return {"now": local.isoformat(), "timezone": zone, "weekday": local.strftime("%A")}


def _zone(name: str) -> tzinfo:
    if name.upper() in {"UTC", "GMT", "Z"}:
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours < 24:  # noqa: PLR2004 - hours of a day
            delta = timedelta(hours=hours, minutes=minutes)
            return timezone(delta if offset[1] == "+" else -delta)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ZoneError(_unknown(name)) from None


def _unknown(name: str) -> str:
    known = available_timezones()
    if not known:
        return f"The zone {name!r} is not known: no time zone data here. Use UTC or +08:00."
    close = difflib.get_close_matches(name, known, n=3)
    likely = f" Did you mean {', '.join(close)}?" if close else ""
    return f"The zone {name!r} is not known.{likely} Use an IANA name such as Asia/Shanghai."
