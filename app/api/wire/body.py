"""The body of a request: read within a limit, decoded strictly, its text made clean.

What a database, UTF-8 or another JSON parser would choke on later is dealt with here, once:

    not UTF-8, not JSON, NaN or Infinity, nested too deep   400
    longer than the limit                                   413
    slower than a minute                                    408
    another content type, a content coding                  415
    U+0000 and lone surrogates                              become U+FFFD
    integers beyond 64 bits, numbers beyond a double        422 and 400
"""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, NoReturn, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from app.api.pointers import pointer
from app.api.wire.problems import HttpProblem
from app.runtime.refusals import FieldFault, Invalid

MOST_DEPTH: Final = 100
READ_S: Final = 60.0
"""How long a client may take over a body."""

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_UNCLEAN: Final = re.compile("[\0\ud800-\udfff]")
_SUSPICIOUS: Final = re.compile(rb"\\u0000|\\u[dD][89a-fA-F]|\d{19}")
_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode
_INT_BITS: Final = 63
_MOST_DIGITS: Final = 1000


async def read_object(request: Request, limit: int, *, optional: bool = False) -> dict[str, object]:
    """Return the JSON object that a request carries; `optional`: an empty body is an empty one.

    Raises:
        HttpProblem: when it is too large, of another type, or no JSON object.
        Invalid: when a number in it cannot be kept exactly.

    """
    raw = await read_raw(request, limit)
    if not raw and optional:
        return {}
    check_type(request)
    value = decode(raw)
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    fault = FieldFault("", "must be a JSON object")
    raise Invalid("The body must be a JSON object.", fault)


async def read_raw(request: Request, limit: int) -> bytes:
    """Return the bytes of a body, as soon as it is known that they are within the limit."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(READ_S):
            return await _received(request.receive, limit)
    except TimeoutError:
        detail = f"The body did not come within {READ_S:g} s."
        headers = {"Connection": "close"}
        status = HTTPStatus.REQUEST_TIMEOUT
        raise HttpProblem(status, "body-too-slow", detail, headers=headers) from None


async def _received(receive: Receive, limit: int) -> bytes:
    message = await receive()
    body = cast("bytes", message.get("body", b""))
    if not message.get("more_body") and message["type"] != "http.disconnect":
        _check_size(len(body), limit)
        return body
    parts = [body]
    size = len(body)
    while message.get("more_body"):
        _check_size(size, limit)
        message = await receive()
        part = cast("bytes", message.get("body", b""))
        parts.append(part)
        size += len(part)
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    _check_size(size, limit)
    return b"".join(parts)


def decode(raw: bytes) -> object:
    """Return what JSON bytes say, clean."""
    try:
        value: object = _parse_carefully(raw) if _SUSPICIOUS.search(raw) else _DECODE(raw)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise _not_json(str(error)) from None
    if raw.count(b"{") + raw.count(b"[") > MOST_DEPTH and _deeper(value, MOST_DEPTH):
        raise _too_deep()
    return value


def canonical(value: object) -> bytes:
    """Return the bytes by which two requests are known to say the same."""
    return _ENCODE(value)


def clean_text(text: str) -> str:
    """Return text that a database and UTF-8 can carry."""
    return _UNCLEAN.sub(REPLACEMENT, text)


def _parse_carefully(raw: bytes) -> object:
    """Decode what holds escapes or numbers that need a closer look."""
    text = raw.decode("utf-8", "strict")
    value: object = json.loads(text, parse_constant=_refuse_constant, parse_int=_whole)
    if _deeper(value, MOST_DEPTH):
        raise _too_deep()
    return _clean(value, ())


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        message = "an integer is too long"
        raise ValueError(message)
    return int(digits)


def _clean(value: object, path: tuple[str | int, ...]) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        message = "a number is out of range"
        raise ValueError(message)
    if isinstance(value, int) and value.bit_length() > _INT_BITS:
        message = "must fit in 64 bits; send a longer number as a string"
        raise Invalid("An integer is too large.", FieldFault(clean_text(pointer(path)), message))
    return value


def _deeper(value: object, most: int) -> bool:
    """Return whether a value is nested deeper than this; by levels, so never by recursion."""
    level: list[object] = [value]
    for _ in range(most + 1):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return True


def _inside(item: object) -> Iterator[object]:
    if isinstance(item, dict):
        yield from (inner for inner in item.values() if isinstance(inner, dict | list))
    elif isinstance(item, list):
        yield from (inner for inner in item if isinstance(inner, dict | list))


def check_type(request: Request) -> None:
    """Refuse a body that is not plain JSON in UTF-8.

    Raises:
        HttpProblem: saying what to send.

    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        detail = "Send the body as it is: a Content-Encoding is not taken."
        headers = {"Accept-Encoding": "identity"}
        raise HttpProblem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail, headers=headers
        )
    header = request.headers.get("content-type")
    if header is None or header == "application/json":
        return
    kind, _, parameters = header.lower().partition(";")
    kind = kind.strip()
    is_json = kind == "application/json" or (kind.startswith("application/") and "+json" in kind)
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
    if not is_json or charset not in {"", "utf-8", "utf8"}:
        detail = "Send the body as application/json in UTF-8."
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> HttpProblem:
    detail = f"The body is larger than {limit} bytes."
    return HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", detail)


def _too_deep() -> HttpProblem:
    return _not_json(f"it is nested deeper than {MOST_DEPTH} levels")


def _not_json(why: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.BAD_REQUEST, "not-json", f"The body cannot be read: {why}.")
