"""A request from a template and arguments. No argument can change where the request goes.

A value in the URL is percent-encoded down to unreserved characters, so it stays inside its
segment or query value; a segment that would become empty, `.` or `..` is refused. A header value
is one line. Secrets are filled in last and remembered, so that they can be taken out of whatever
comes back.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import HttpTemplate
from app.runtime.errors import ToolFailure
from app.tools.placeholders import Argument, Part, Secret, names, parts, texts

WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_URL: Final = re.compile(r"(https?)://([^/?#]+)([^?#]*)(?:\?([^#]*))?", re.IGNORECASE)
_STATIC: Final = "%!$&'()*+,;=:@/~"
_UNSAFE_HEADER: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_WHOLE_FLOAT: Final = 2.0**53


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes; `authority` is host and optional port as written."""

    scheme: str
    authority: str
    path: str
    query: str

    @property
    def resource(self) -> str:
        """Return path and query as the request line has them."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request ready to be sent, and which of its headers and values are secret."""

    method: str
    target: Target
    headers: tuple[tuple[str, str], ...]
    content: bytes
    secret_headers: frozenset[str] = frozenset()
    secrets: tuple[str, ...] = ()


@dataclass(slots=True)
class _Filler:
    """Fills templates with arguments and secrets."""

    arguments: Mapping[str, Json]
    known: Collection[str]
    secrets: Mapping[str, str]
    revealed: set[str] = field(default_factory=set)

    def parts(self, template: str) -> list[Part]:
        return parts(template, self.known)

    def exact(self, pieces: list[Part]) -> str | None:
        """Return the argument's name when the template is nothing but its placeholder."""
        only = pieces[0] if len(pieces) == 1 else None
        return only.name if isinstance(only, Argument) else None

    def absent(self, pieces: list[Part]) -> bool:
        """Return whether an argument that the template needs was not given."""
        return any(
            isinstance(piece, Argument) and self.arguments.get(piece.name) is None
            for piece in pieces
        )

    def text(self, pieces: list[Part]) -> str:
        """Return the template filled in as plain text."""
        return "".join(self.piece(piece) for piece in pieces)

    def piece(self, piece: Part) -> str:
        match piece:
            case Argument(name):
                return as_plain(self.arguments.get(name))
            case Secret(name):
                return self._secret(name)
            case _:
                return piece

    def _secret(self, name: str) -> str:
        value = self.secrets.get(name)
        if value is None:
            message = f"The secret '{name}' that this tool needs is not set here."
            raise ToolFailure(Fault.of(FaultKind.PERMISSION, message, sent=False))
        self.revealed.add(value)
        return value


def build(
    template: HttpTemplate,
    arguments: Mapping[str, Json],
    *,
    known: Collection[str],
    secrets: Mapping[str, str],
    whole_body: bool = True,
) -> Outgoing:
    """Return the request that a template makes of arguments; `known` are the tool's parameters.

    `whole_body`: a template without a body sends the arguments that it does not use otherwise.

    Raises:
        ToolFailure: when an argument does not fit its place, or a secret is not set.

    """
    filler = _Filler(arguments, known, secrets)
    match = _URL.fullmatch(template.url)
    if match is None:
        raise _refusal("The tool's URL cannot be used.", FaultKind.INTERNAL)
    path = _path(filler, match[3])
    query = [*_query_of_url(filler, match[4]), *_query(filler, template)]
    headers, secret_headers = _headers(filler, template.headers)
    content, content_type = _content(filler, template, dict(headers), whole=whole_body)
    if content_type:
        headers.append(("content-type", content_type))
    return Outgoing(
        method=template.method,
        target=Target(match[1].lower(), match[2], path, "&".join(query)),
        headers=tuple(headers),
        content=content,
        secret_headers=secret_headers,
        secrets=tuple(filler.revealed),
    )


def _path(filler: _Filler, template: str) -> str:
    segments = []
    for segment in (template or "/").split("/"):
        pieces = filler.parts(segment)
        if filler.absent(pieces):
            name = next(p.name for p in pieces if isinstance(p, Argument))
            raise _refusal(f"Parameter `{name}` is needed: it is part of the URL's path.")
        text = "".join(_encoded(filler, piece) for piece in pieces)
        given = any(isinstance(piece, Argument) for piece in pieces)
        if given and unquote(text).strip() in {"", ".", ".."}:
            name = next(p.name for p in pieces if isinstance(p, Argument))
            raise _refusal(
                f"Parameter `{name}` cannot be empty, '.' or '..': it is part of a path."
            )
        segments.append(text)
    return "/".join(segments)


def _encoded(filler: _Filler, piece: Part) -> str:
    text = filler.piece(piece)
    return quote(text, safe=_STATIC) if isinstance(piece, str) else quote(text, safe="")


def _query_of_url(filler: _Filler, template: str | None) -> list[str]:
    pairs = []
    for pair in (template or "").split("&"):
        pieces = filler.parts(pair)
        if pair and not filler.absent(pieces):
            pairs.append("".join(_encoded(filler, piece) for piece in pieces))
    return pairs


def _query(filler: _Filler, template: HttpTemplate) -> list[str]:
    if template.query is not None:
        values = {key: _value(filler, item) for key, item in template.query.items()}
    elif template.method not in WITH_BODY and template.body is None:
        values = _remaining(filler, template)
    else:
        values = {}
    pairs: list[str] = []
    for key, value in values.items():
        items = value if isinstance(value, list) else [value]
        pairs.extend(_pair(key, i) for i in items if i is not None and i is not _ABSENT)
    return pairs


def _pair(key: str, value: Json) -> str:
    return f"{quote(key, safe='')}={quote(as_plain(value), safe='')}"


def _headers(
    filler: _Filler, templates: Mapping[str, str]
) -> tuple[list[tuple[str, str]], frozenset[str]]:
    headers, secret = [], set()
    for name, template in templates.items():
        pieces = filler.parts(template)
        if filler.absent(pieces):
            continue
        text = filler.text(pieces).strip()
        if _UNSAFE_HEADER.search(text):
            raise _refusal(f"A value for the header {name} must be one line of plain text.")
        headers.append((name.lower(), text))
        if any(isinstance(piece, Secret) for piece in pieces):
            secret.add(name.lower())
    return headers, frozenset(secret)


def _content(
    filler: _Filler, template: HttpTemplate, headers: Mapping[str, str], *, whole: bool
) -> tuple[bytes, str | None]:
    """Return the body, and its content type where the headers name none."""
    if template.body is not None:
        value = _value(filler, template.body)
        value = None if value is _ABSENT else value
    elif whole and template.method in WITH_BODY:
        value = _remaining(filler, template)
    else:
        return b"", None
    stated = headers.get("content-type", "")
    if stated.startswith("application/x-www-form-urlencoded") and isinstance(value, dict):
        return "&".join(_pair(key, item) for key, item in value.items()).encode(), None
    if isinstance(value, str) and stated and "json" not in stated:
        return value.encode(), None
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(), None if stated else "application/json"


class _Absent:
    """Stands for an optional argument that was not given."""


_ABSENT: Final = _Absent()


def _value(filler: _Filler, template: Json) -> Json:
    """Return a template value filled in: an exact `{x}` keeps its type, an absent one vanishes."""
    if isinstance(template, str):
        pieces = filler.parts(template)
        name = filler.exact(pieces)
        if name is None:
            return filler.text(pieces)
        return filler.arguments.get(name, _ABSENT)
    if isinstance(template, dict):
        made = {key: _value(filler, item) for key, item in template.items()}
        return {key: item for key, item in made.items() if item is not _ABSENT}
    if isinstance(template, list):
        items = [_value(filler, item) for item in template]
        return [item for item in items if item is not _ABSENT]
    return template


def _remaining(filler: _Filler, template: HttpTemplate) -> dict[str, Json]:
    """Return the arguments that no other part of the template uses."""
    places = [template.url, *template.headers.values(), *texts(dict(template.query or {}))]
    used = {name for place in places for name in names(place)}
    return {name: value for name, value in filler.arguments.items() if name not in used}


def as_plain(value: Json) -> str:
    """Return a value as text in a URL, header or longer text; objects as JSON, null as nothing."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_FLOAT:
        return str(int(value))
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ",".join(as_plain(item) for item in value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refusal(message: str, kind: FaultKind = FaultKind.INVALID_ARGS) -> ToolFailure:
    return ToolFailure(Fault.of(kind, message, sent=False))


def secrets_from(environ: Mapping[str, str], prefix: str = "SUREFOOT_SECRET_") -> dict[str, str]:
    """Return the secrets given by environment: `SUREFOOT_SECRET_WEATHER_KEY` is `weather_key`."""
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in environ.items()
        if name.startswith(prefix) and value
    }
