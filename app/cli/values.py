"""Reading JSON of another process: nothing is taken for granted, nothing raises.

A newer service may send more, an older one less; what is missing shows as empty. Control characters
are taken out of what is shown: tool output and model text are not ours, and a terminal obeys them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

Record = Mapping[str, object]

NOTHING: Final[Record] = {}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def record(value: object) -> Record:
    """Return the object, or an empty one."""
    return value if isinstance(value, Mapping) else NOTHING


def records(value: object) -> list[Record]:
    """Return the objects of a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def text(value: object) -> str:
    """Return a value as text; nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else compact(value)


def number(value: object) -> float:
    """Return a number, 0 when it is none."""
    return float(value) if isinstance(value, int | float) else 0.0


def integer(value: object) -> int:
    """Return a whole number, 0 when it is none."""
    return int(number(value))


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def clean(raw: str) -> str:
    """Return the text without what a terminal would obey; line breaks and tabs stay."""
    return _CONTROL.sub("", raw.replace("\r\n", "\n"))


def brief(value: object, limit: int = 160) -> str:
    """Return a value on one line, cut to a length, and without control characters."""
    line = " ".join(clean(text(value)).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def seconds(at: object) -> float | None:
    """Return an RFC 3339 time as seconds since 1970."""
    try:
        return datetime.fromisoformat(text(at)).timestamp()
    except ValueError:
        return None


def moment(at: object) -> str:
    """Return a time to the second: of RFC 3339, or of microseconds since 1970; else as it came."""
    us = seconds(at) if isinstance(at, str) else number(at) / 1e6
    try:
        shown = datetime.fromtimestamp(us or 0, UTC)
    except (ValueError, OverflowError, OSError):
        return text(at)
    return f"{shown:%Y-%m-%dT%H:%M:%S}Z" if us else text(at)
