"""What an HTTP tool answered: its body as a JSON value, or its status as a fault (TOOL-8)."""

import codecs
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind, Hint
from app.tools.hygiene import REPLACEMENT, clean_text, read_json

MOST_BYTES: Final = 5_000_000
_SHORTEST_SECRET: Final = 6
_EXCERPT: Final = 300
_TEXT_TYPES: Final = frozenset(
    {
        "application/xml",
        "application/javascript",
        "application/yaml",
        "application/x-yaml",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/sql",
        "application/graphql",
        "image/svg+xml",
    }
)
_KINDS: Final = {
    400: FaultKind.INVALID_ARGS,
    401: FaultKind.PERMISSION,
    402: FaultKind.PERMISSION,
    403: FaultKind.PERMISSION,
    404: FaultKind.NOT_FOUND,
    407: FaultKind.PERMISSION,
    408: FaultKind.TIMEOUT,
    409: FaultKind.CONFLICT,
    410: FaultKind.NOT_FOUND,
    412: FaultKind.CONFLICT,
    413: FaultKind.INVALID_ARGS,
    414: FaultKind.INVALID_ARGS,
    422: FaultKind.INVALID_ARGS,
    423: FaultKind.CONFLICT,
    429: FaultKind.RATE_LIMITED,
    451: FaultKind.PERMISSION,
}
_WHAT: Final = {
    FaultKind.INVALID_ARGS: "did not accept the arguments",
    FaultKind.PERMISSION: "refused access",
    FaultKind.NOT_FOUND: "found nothing there",
    FaultKind.CONFLICT: "reported a conflict",
    FaultKind.RATE_LIMITED: "asked to be called less often",
    FaultKind.UNAVAILABLE: "failed on its side",
    FaultKind.TIMEOUT: "gave up waiting",
    FaultKind.INTERNAL: "could not handle the request",
}
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"}
)
"""Codecs of Python which no server writes text in; punycode takes quadratic time."""

_TOO_LARGE: Final = frozenset({413, 414})
_SERVER_SIDE: Final = 500


@dataclass(frozen=True, slots=True)
class Received:
    """An answer as bytes; `cut_off` when it was longer than is read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut_off: bool = False
    secrets: tuple[str, ...] = ()

    @property
    def content_type(self) -> str:
        """Return the media type without parameters, in lower case; empty when not stated."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def value_of(received: Received) -> Json:
    """Return the body as a JSON value: JSON as it is, text as text, all else as type and size."""
    if not received.body:
        return None
    kind = received.content_type
    body = _unpacked(received)
    if body is None or not _is_text(kind, body):
        return {"type": kind or "application/octet-stream", "size": len(received.body)}
    text = _without_secrets(_decoded(received, body), received.secrets)
    if not received.cut_off and _may_be_json(kind):
        try:
            return read_json(text, strict=False)[0]
        except ValueError:
            pass  # it only says that it is JSON
    return clean_text(text)


def _is_text(kind: str, body: bytes) -> bool:
    if kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith("+xml"):
        return True
    if _states_json(kind):
        return True
    return not kind and b"\0" not in body and REPLACEMENT not in body.decode(errors="replace")


def _states_json(kind: str) -> bool:
    return kind.endswith(("/json", "+json"))


def _may_be_json(kind: str) -> bool:
    return not kind or _states_json(kind)


def _decoded(received: Received, body: bytes) -> str:
    message = Message()
    message["content-type"] = received.headers.get("content-type", "")
    charset = message.get_content_charset("utf-8")
    try:
        if codecs.lookup(charset).name.replace("-", "_") not in _NO_CHARSETS:
            return body.decode("utf-8-sig" if charset == "utf-8" else charset, errors="replace")
    except (LookupError, ValueError):
        pass  # it names what is no charset, or one that cannot say what it could not read
    return body.decode(errors="replace")


def _unpacked(received: Received) -> bytes | None:
    """Return the body unpacked, up to the bound; None when it cannot be."""
    encoding = received.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"identity", ""}:
        return received.body
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        return None
    try:
        return zlib.decompressobj(wbits=47).decompress(received.body, MOST_BYTES)
    except zlib.error:
        return None


def _without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text in which a secret that a server sent back cannot be read."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "[secret]")
            text = text.replace(json.dumps(secret)[1:-1], "[secret]")
    return text


def fault_of(received: Received, host: str, now_us: int) -> Fault | None:
    """Return the fault that a status means, or None for one of success."""
    status = received.status
    if 200 <= status < 300:  # noqa: PLR2004 - the class of success
        return None
    kind = _KINDS.get(status, FaultKind.INTERNAL)
    if status >= _SERVER_SIDE:
        kind = FaultKind.UNAVAILABLE
    message = f"{host} {_WHAT[kind]} (HTTP {status})."
    excerpt = "" if status >= _SERVER_SIDE else _excerpt(received)
    return Fault.of(
        kind,
        f"{message} It said: {excerpt}" if excerpt else message,
        hint=Hint.SMALLER_SCOPE if status in _TOO_LARGE else None,
        retry_after_us=retry_after_us(received.headers.get("retry-after"), now_us),
    )


def _excerpt(received: Received) -> str:
    """Return the beginning of an error's body on one line; no pages and no stack traces."""
    if received.content_type == "text/html":
        return ""
    value = value_of(received)
    if isinstance(value, dict) and set(value) == {"type", "size"}:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    if value is None or "Traceback (most recent" in text or "\tat " in text:
        return ""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def retry_after_us(stated: str | None, now_us: int) -> int | None:
    """Return how long a server asks to be left alone: seconds or an HTTP date; None if neither."""
    if stated is None:
        return None
    try:
        seconds = float(stated)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(stated).timestamp() - now_us / 1e6
        except (ValueError, OverflowError):
            return None
    if not 0 <= abs(seconds) < 1e9:  # noqa: PLR2004 - thirty years; also refuses NaN
        return None
    return max(0, int(seconds * 1e6))
