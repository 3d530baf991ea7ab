"""What a request template must hold to, checked when a tool is registered."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from app.core.toolbox import nearest
from app.tools.body import HttpBody
from app.tools.errors import Problem
from app.tools.placeholders import names, secrets, texts
from app.tools.schema_walk import token

_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"https?://([^/?#\\]*)", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_OURS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "traceparent",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def template_problems(http: HttpBody, known: frozenset[str]) -> Iterator[Problem]:
    """Yield what cannot work in a template, given the names of the tool's parameters."""
    yield from _url_problems(http.url)
    yield from _unknown("/http/url", http.url, known)
    if any(c in name for name in names(http.url) for c in "/?&#"):
        yield Problem(
            "/http/url", "a parameter whose name has '/', '?', '&' or '#' cannot stand here"
        )
    for name, value in http.headers.items():
        yield from _header_problems(name, value, known)
    for key, item in (http.query or {}).items():
        for text in texts(item):
            yield from _unknown(f"/http/query/{token(key)}", text, known)


def _url_problems(url: str) -> Iterator[Problem]:
    place = "/http/url"
    if not _SCHEME.match(url):
        yield Problem(place, "must begin with http:// or https://, and not with a placeholder")
        return
    found = _AUTHORITY.match(url)
    authority = found[1] if found else ""
    if "{" in authority or "}" in authority:
        yield Problem(place, "no placeholder may stand in the host or port")
    elif "@" in authority:
        yield Problem(place, "no user or password in a URL; use a header with a secret")
    elif _bad_authority(url, authority):
        yield Problem(place, f"{authority!r} is not a host with an optional port")
    if any(ord(c) < 33 or ord(c) == 127 for c in url) or "\\" in url:  # noqa: PLR2004 - ASCII controls
        yield Problem(place, "must have no spaces, control characters or backslashes")
    if "#" in url:
        yield Problem(place, "a fragment is never sent; leave '#' out")
    if secrets(url.partition("?")[0]):
        yield Problem(place, "a secret may stand in headers, query and body, not in the path")


def _bad_authority(url: str, authority: str) -> bool:
    try:
        split = urlsplit(url)
        return not split.hostname or split.port == 0 or authority.endswith(":")
    except ValueError:
        return True


def _header_problems(name: str, value: str, known: frozenset[str]) -> Iterator[Problem]:
    place = f"/http/headers/{token(name)}"
    if not _HEADER_NAME.fullmatch(name):
        yield Problem(place, "is not the name of a header")
    elif name.lower() in _OURS:
        yield Problem(place, "is set by the service itself")
    if any(c in value for c in "\r\n\0"):
        yield Problem(place, "must be one line")
    yield from _unknown(place, value, known)


def _unknown(place: str, template: str, known: frozenset[str]) -> Iterator[Problem]:
    for name in names(template):
        if name not in known:
            close = nearest(name, known, 1)
            hint = f"; did you mean '{{{close[0]}}}'?" if close else ""
            yield Problem(place, f"{{{name}}} is no parameter of this tool{hint}")
