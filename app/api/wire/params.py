"""Query parameters and headers, read without surprises: a bad value is a 400 that names it."""

import re
from typing import Final, Literal

from starlette.requests import Request

from app.api.wire.body import clean_text
from app.api.wire.problems import bad_parameter
from app.runtime.refusals import NotFound

DEFAULT_LIMIT: Final = 50
MOST_LIMIT: Final = 500
MOST_WAIT_S: Final = 300
_DIGITS: Final = 18
_BEYOND: Final = 10**_DIGITS
_MOST_KEY: Final = 255
_STRING: Final = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
_ITEM: Final = re.compile(
    rf"{_STRING}(?: *; *[a-z*][a-z0-9_.*-]*(?:=(?:{_STRING.replace('((', '(?:(')}|[^ \";,]+))?)*"
)
"""A String of Structured Fields (RFC 9651); its parameters mean nothing here."""

_BARE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")
"""A key as most clients send it: printable, without what could be meant as syntax."""

_MOST_FILTER: Final = 256
Kind = Literal["session", "approval", "schedule", "webhook", "delivery"]
_IDS: Final[dict[Kind, re.Pattern[str]]] = {
    "session": re.compile(r"ses_[0-9A-Za-z_-]{1,60}"),
    "approval": re.compile(r"apr_[0-9A-Za-z_-]{1,120}"),
    "schedule": re.compile(r"sch_[0-9A-Za-z_-]{1,60}"),
    "webhook": re.compile(r"whk_[0-9a-z]{26}"),
    "delivery": re.compile(r"dlv_[0-9a-z]{26,40}"),
}
"""What an id looks like; nothing else is looked for in the database."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_WAIT: Final = re.compile(r"\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:;.*)?", re.IGNORECASE)


def path_id(request: Request, kind: Kind) -> str:
    """Return the id in the path.

    Raises:
        NotFound: when nothing of this kind can have it.

    """
    found = str(request.path_params["id"])
    if _IDS[kind].fullmatch(found) is None:
        raise NotFound(kind, clean_text(found[:80]))
    return found


def tool_name(request: Request) -> str:
    """Return the tool's name in the path, as text that a database can carry."""
    return clean_text(str(request.path_params["name"]))


def limit(request: Request) -> int:
    """Return how many the client wants.

    Raises:
        HttpProblem: when it is not a number from 1 to 500.

    """
    text = request.query_params.get("limit")
    if text is None:
        return DEFAULT_LIMIT
    number = _number(text)
    if number is None or not 1 <= number <= MOST_LIMIT:
        raise bad_parameter("/query/limit", f"limit must be a number from 1 to {MOST_LIMIT}")
    return number


def after_seq(request: Request) -> int | None:
    """Return the sequence number after which the client wants to read, None when not given.

    Raises:
        HttpProblem: when it is not a whole number from 0 on.

    """
    text = request.query_params.get("after")
    if text is None:
        return None
    number = _number(text)
    if number is None:
        raise bad_parameter("/query/after", "after must be a sequence number, 0 or more")
    return number


def seq(request: Request, name: str) -> int | None:
    """Return the number of an event, None when not given.

    Raises:
        HttpProblem: when it is not a whole number.

    """
    text = request.query_params.get(name)
    number = None if text is None else _number(text)
    if text is not None and number is None:
        raise bad_parameter(f"/query/{name}", f"{name} must be the number of an event, from 1 on")
    return number


def cursor(request: Request, kind: Kind) -> str | None:
    """Return the cursor of a list.

    Raises:
        HttpProblem: when it is none that such a list has given.

    """
    text = request.query_params.get("after")
    if text is not None and _IDS[kind].fullmatch(text) is None:
        raise bad_parameter("/query/after", "after must be the `next` of an earlier page")
    return text


def text_filter(request: Request, name: str) -> str | None:
    """Return a filter's value."""
    text = request.query_params.get(name)
    return None if text is None else clean_text(text[:_MOST_FILTER])


def choice(request: Request, name: str, allowed: frozenset[str]) -> str | None:
    """Return a value out of a closed list.

    Raises:
        HttpProblem: when it is none of them.

    """
    text = request.query_params.get(name)
    if text is not None and text not in allowed:
        message = f"{name} must be one of {', '.join(sorted(allowed))}"
        raise bad_parameter(f"/query/{name}", message)
    return text


def last_event_id(request: Request) -> int | None:
    """Return what a reader had last; None when it does not say, or says nothing that we gave."""
    text = request.headers.get("last-event-id")
    return None if text is None else _number(text.strip())


def wait_s(request: Request) -> int | None:
    """Return for how long the client is ready to wait (`Prefer: wait=N`), None when it is not."""
    header = request.headers.get("prefer")
    if header is None:
        return None
    for preference in header.split(","):
        found = _WAIT.fullmatch(preference)
        if found is not None:
            return min(int(found[1]), MOST_WAIT_S)
    return None


def idempotency_key(request: Request) -> str | None:
    """Return the key of the request; `"k"`, as the draft writes it, and a bare `k` are the same.

    Raises:
        HttpProblem: when there are several, or it is neither, or empty, or too long.

    """
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    text = given[0].strip(" ")
    if _BARE.fullmatch(text):
        key = text
    else:
        item = _ITEM.fullmatch(text)
        key = "" if item is None else re.sub(r"\\(.)", r"\1", item[1])
    if len(given) > 1 or not 0 < len(key) <= _MOST_KEY:
        message = (
            'Idempotency-Key must be one string in quotes ("…", RFC 9651) or one bare word, of 1 '
            f"to {_MOST_KEY} printable ASCII characters"
        )
        raise bad_parameter("/header/Idempotency-Key", message)
    return key


def traceparent(request: Request) -> str | None:
    """Return the caller's trace context; one that is malformed is ignored, as W3C asks."""
    header = request.headers.get("traceparent")
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None


def wants_stream(request: Request) -> bool:
    """Return whether the client would rather have an event stream than JSON."""
    header = request.headers.get("accept")
    if header is None or "text/event-stream" not in header:
        return False
    ranks = dict(_rank(part) for part in header.split(","))
    return ranks.get("text/event-stream", 0.0) > ranks.get("application/json", 0.0)


def _rank(part: str) -> tuple[str, float]:
    kind, _, rest = part.partition(";")
    quality = re.fullmatch(r".*\bq\s*=\s*([01](?:\.\d{1,3})?).*", rest)
    return kind.strip().lower(), float(quality[1]) if quality else 1.0


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdigit():
        return None
    return int(text) if len(text) <= _DIGITS else _BEYOND
