"""What a request template must hold to, checked when a tool is registered."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from app.core.canonical import Json
from app.core.toolbox import nearest
from app.tools.body import RequestBody, StatusCheckBody
from app.tools.errors import Problem
from app.tools.placeholders import names, secrets, texts
from app.tools.schema_walk import token
from app.tools.status import KEY

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


def template_problems(
    template: RequestBody, known: frozenset[str], place: str = "/http"
) -> Iterator[Problem]:
    """Yield what cannot work in a template, given the names of the tool's parameters."""
    at = f"{place}/url"
    yield from _url_problems(template.url, at)
    yield from _unknown(at, template.url, known)
    if any(c in name for name in names(template.url) for c in "/?&#"):
        yield Problem(at, "a parameter whose name has '/', '?', '&' or '#' cannot stand here")
    for name, value in template.headers.items():
        yield from _header_problems(name, value, known, f"{place}/headers/{token(name)}")
    for key, item in (template.query or {}).items():
        for text in texts(item):
            yield from _unknown(f"{place}/query/{token(key)}", text, known)


def status_check_problems(
    check: StatusCheckBody, parameters: frozenset[str], kind: str
) -> Iterator[Problem]:
    """Yield why a status check cannot work, or could not tell one call from another."""
    place = "/status_check"
    if kind != "http":
        yield Problem(place, f"does not belong to a tool of kind {kind!r}")
        return
    known = parameters | {KEY}
    yield from template_problems(check, known, place)
    if known.isdisjoint(used_names(check.url, check.query, check.headers, check.body)):
        yield Problem(place, f"asks the same for every call; put {{{KEY}}} into it")


def used_names(*templates: Json) -> set[str]:
    """Return every name in braces in these templates."""
    return {name for template in templates for text in texts(template) for name in names(text)}


def _url_problems(url: str, place: str) -> Iterator[Problem]:
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


def _header_problems(name: str, value: str, known: frozenset[str], place: str) -> Iterator[Problem]:
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
