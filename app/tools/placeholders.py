"""`{name}` and `{{secret:NAME}}` in templates: found here, filled in `templates`."""

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json

_PART: Final = re.compile(r"\{\{\s*secret:\s*([A-Za-z0-9_.-]+)\s*\}\}|\{([^{}\s]+)\}")


@dataclass(frozen=True, slots=True)
class Argument:
    """A place for an argument."""

    name: str


@dataclass(frozen=True, slots=True)
class Secret:
    """A place for a secret."""

    name: str


Part = str | Argument | Secret


def parts(template: str, known: Container[str]) -> list[Part]:
    """Return a template's pieces; braces around what is no known argument stay text."""
    found: list[Part] = []
    end = 0
    for match in _PART.finditer(template):
        secret, name = match.groups()
        if secret is None and name not in known:
            continue
        if match.start() > end:
            found.append(template[end : match.start()])
        found.append(Secret(secret) if secret is not None else Argument(name))
        end = match.end()
    if end < len(template):
        found.append(template[end:])
    return found


def names(template: str) -> list[str]:
    """Return every name that stands in single braces, known or not."""
    return [match[2] for match in _PART.finditer(template) if match[2] is not None]


def secrets(template: str) -> list[str]:
    """Return the names of the secrets that a template refers to."""
    return [match[1] for match in _PART.finditer(template) if match[1] is not None]


def texts(value: Json) -> Iterator[str]:
    """Yield every text inside a template value; keys are not templates."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
