"""What an endpoint's refusal means: from statuses and error objects to the faults of the core."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.providers.text import clean
from app.runtime.errors import ModelFailure

_MOST_CHARS: Final = 600
_SECOND: Final = 1_000_000
_KEY_LIKE: Final = re.compile(r"\b(?:sk|key|gsk|xai|pk)-[A-Za-z0-9_*-]{4,}")
_TOO_LONG: Final = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|input is too long|exceeds? the (?:maximum|model'?s?) .{0,40}tokens",
    re.IGNORECASE,
)
_BY_WORD: Final = (
    (re.compile(r"rate.?limit|too many requests|quota", re.IGNORECASE), 429),
    (re.compile(r"invalid.?request|bad.?request|not.?found|unsupported", re.IGNORECASE), 400),
    (re.compile(r"authenti|unauthori|invalid.?api.?key|permission", re.IGNORECASE), 401),
    (re.compile(r"time.?out", re.IGNORECASE), 408),
)
_UNKNOWN_STATUS: Final = 503


def unavailable(message: str, *, sent: bool = True) -> ModelFailure:
    """Return the failure of an endpoint that cannot be used just now."""
    return ModelFailure(Fault.of(FaultKind.UNAVAILABLE, message, sent=sent))


class FailureReader:
    """Makes failures of what one endpoint answers; the key of the endpoint appears in none."""

    __slots__ = ("_key", "_key_name", "_model")

    def __init__(self, model: str, api_key: str, key_name: str) -> None:
        self._model = model
        self._key = api_key
        self._key_name = key_name

    def from_status(
        self, status: int, headers: Mapping[str, str], body: bytes, now_us: int
    ) -> ModelFailure:
        """Return the failure that an HTTP status other than success stands for."""
        wait = retry_after_us(headers, now_us)
        return self._failure(status, self.message_of(body), wait)

    def from_error(self, error: Json) -> ModelFailure:
        """Return the failure that an error object inside an answer stands for."""
        message = self._safe(_message_in(error))
        return self._failure(_status_in(error), message, None)

    def message_of(self, body: bytes) -> str:
        """Return what the provider says in the body of an error."""
        try:
            return self._safe(_message_in(msgspec.json.decode(body)))
        except ValueError:
            return self._safe(body.decode("utf-8", "replace").strip())

    def _safe(self, message: str) -> str:
        message = clean(message)
        if self._key:
            message = message.replace(self._key, "***")
        return _KEY_LIKE.sub("***", message)[:_MOST_CHARS]

    def _failure(self, status: int, message: str, wait: int | None) -> ModelFailure:
        kind = _kind_of(status, message)
        said = f"The model endpoint of {self._model!r} answered {status}: {message or 'no reason'}"
        if status in {401, 403}:
            # A provider often repeats part of the key it refuses: a 401 is not quoted at all.
            why = "" if status == 401 or not message else f" ({message})"  # noqa: PLR2004
            said = (
                f"The model endpoint of {self._model!r} refused the API key (status {status}){why}:"
                f" check {self._key_name}."
            )
        return ModelFailure(Fault.of(kind, said, retry_after_us=wait))


def _kind_of(status: int, message: str) -> FaultKind:
    if status in {401, 403}:
        return FaultKind.REFUSED_REQUEST
    if status == 429:  # noqa: PLR2004
        return FaultKind.RATE_LIMITED
    if _TOO_LONG.search(message):
        return FaultKind.CONTEXT_TOO_LONG
    if status == 408:  # noqa: PLR2004
        return FaultKind.TIMEOUT
    return FaultKind.UNAVAILABLE if status >= 500 else FaultKind.REFUSED_REQUEST  # noqa: PLR2004


def _message_in(value: Json) -> str:
    """Return the text of an error in any of the usual shapes, else the whole as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("error", "message", "detail"):
            if value.get(name):
                return _message_in(value[name])
    return msgspec.json.encode(value).decode() if value else ""


def _status_in(error: Json) -> int:
    """Return the HTTP status an error object stands for: a number in it, or what it says."""
    if not isinstance(error, dict):
        return _UNKNOWN_STATUS
    words: list[str] = []
    for name in ("code", "status", "status_code", "type"):
        value = error.get(name)
        if isinstance(value, int | str) and str(value).isdecimal() and 400 <= int(value) < 600:  # noqa: PLR2004
            return int(value)
        words.append(str(value or ""))
    said = " ".join(words)
    return next((status for pattern, status in _BY_WORD if pattern.search(said)), _UNKNOWN_STATUS)


def retry_after_us(headers: Mapping[str, str], now_us: int) -> int | None:
    """Return how long `Retry-After` asks to wait, as seconds or as a date; None for garbage.

    A date is compared with the answer's own `Date`, so that clocks which differ do no harm.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        until = _date_us(value)
        if until is None:
            return None
        return max(0, until - (_date_us(headers.get("Date", "")) or now_us))
    return int(seconds * _SECOND) if 0 <= seconds < 10**9 else None


def _date_us(value: str) -> int | None:
    try:
        return int(parsedate_to_datetime(value).timestamp() * _SECOND)
    except (ValueError, OverflowError):
        return None
