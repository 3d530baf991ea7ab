"""Where a redirect may lead, and what may go along.

once        307, 308: never; 301 only for GET and HEAD (the request would be made again);
            after 302 and 303 the call was taken, whatever the page says that they lead to
elsewhere   no secret header, no Authorization, no Cookie; a body not at all
https→http  never
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from app.core.events import EffectClass
from app.core.faults import Fault, FaultKind
from app.runtime.errors import ToolFailure
from app.tools.templates import Outgoing, Target

MOST: Final = 5
STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})
_MADE_AGAIN: Final = frozenset({301, 307, 308})
_TAKES: Final = frozenset({302, 303})
_SAFE: Final = frozenset({"GET", "HEAD"})
_PRIVATE: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_CONTENT: Final = frozenset({"content-type", "content-encoding", "content-language"})
_URL_CHARACTERS: Final = "%!$&'()*+,;=:@/?~[]#"


def follow(
    outgoing: Outgoing, status: int, headers: Mapping[str, str], effect: EffectClass
) -> Outgoing:
    """Return the request that a redirect leads to.

    Raises:
        ToolFailure: when it is not to be followed.

    """
    if effect is EffectClass.ONCE and _repeats(outgoing.method, status):
        raise _refused(f"answered with a redirect ({status}) that would make the call again")
    target = _target(outgoing.target, headers["location"])
    if outgoing.target.scheme == "https" and target.scheme == "http":
        raise _refused("redirects from https to http")
    moved = replace(outgoing, target=target)
    if status not in _KEEPS_METHOD and not (status != 303 and outgoing.method in _SAFE):  # noqa: PLR2004
        moved = _as_get(moved)
    elsewhere = _origin(target) != _origin(outgoing.target)
    return _without_private(moved) if elsewhere else moved


def takes(method: str, status: int, effect: EffectClass) -> bool:
    """Return whether a redirect says that a `once` call was taken, and where to read of it."""
    return effect is EffectClass.ONCE and status in _TAKES and method not in _SAFE


def unread(failure: ToolFailure) -> ToolFailure:
    """Return what a failure means after such a redirect: nobody knows what the call did."""
    message = (
        f"The call was answered with a redirect, and reading on failed: {failure.fault.message}"
    )
    return ToolFailure(Fault.of(FaultKind.UNKNOWN_OUTCOME, message), flagged=failure.flagged)


def _repeats(method: str, status: int) -> bool:
    return status in _KEEPS_METHOD or (status in _MADE_AGAIN and method not in _SAFE)


def _as_get(outgoing: Outgoing) -> Outgoing:
    kept = tuple(h for h in outgoing.headers if h[0] not in _OF_CONTENT)
    method = "HEAD" if outgoing.method == "HEAD" else "GET"
    return replace(outgoing, method=method, content=b"", headers=kept)


def _without_private(outgoing: Outgoing) -> Outgoing:
    if outgoing.content:
        raise _refused("redirects a request with a body to another place")
    private = _PRIVATE | outgoing.secret_headers
    return replace(outgoing, headers=tuple(h for h in outgoing.headers if h[0] not in private))


def _target(base: Target, location: str) -> Target:
    text = quote(location.strip(), safe=_URL_CHARACTERS)
    try:
        joined = urljoin(f"{base.scheme}://{base.authority}{base.resource}", text)
        split = urlsplit(joined)
        port = split.port
    except ValueError:
        raise _refused("redirects to what is not a URL") from None
    usable = split.scheme in {"http", "https"} and split.hostname and port != 0
    if not usable or "@" in split.netloc:
        raise _refused("redirects to what tools may not call")
    return Target(split.scheme, split.netloc, split.path or "/", split.query)


def _origin(target: Target) -> tuple[str, str]:
    default = ":443" if target.scheme == "https" else ":80"
    return target.scheme, target.authority.lower().removesuffix(default)


def _refused(what: str) -> ToolFailure:
    message = f"The tool's server {what}; it is not followed. The registration has to be changed."
    return ToolFailure(Fault.of(FaultKind.PERMISSION, message))
