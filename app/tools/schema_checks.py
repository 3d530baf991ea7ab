"""Checks of a finished schema against the standard, and of its defaults against itself."""

from collections.abc import Iterator
from typing import Final

from jsonschema import Draft202012Validator

from app.core.canonical import Json
from app.tools.errors import Problem
from app.tools.schema_walk import subschemas, token
from app.tools.validator import validator_for

_MOST_PROBLEMS: Final = 10
_META: Final = Draft202012Validator(Draft202012Validator.META_SCHEMA)


def meta_problems(schema: dict[str, Json], pointer: str) -> Iterator[Problem]:
    """Yield where a schema is not one of JSON Schema 2020-12; the first few."""
    for count, error in enumerate(_META.iter_errors(schema)):
        if count == _MOST_PROBLEMS:
            return
        path = "".join(f"/{token(str(part))}" for part in error.absolute_path)
        yield Problem(pointer + path, _brief(error.message))


def drop_bad_defaults(schema: dict[str, Json], pointer: str, warnings: list[str]) -> None:
    """Take out defaults which their own schema refuses, so that applying one never fails a call."""
    for place, node in subschemas(schema, pointer):
        if "default" not in node:
            continue
        if not validator_for(node).is_valid(node["default"]):
            value = node.pop("default")
            if value is not None:
                shown = _brief(repr(value))
                warnings.append(f"{place}/default: {shown} does not fit its own schema; dropped")


def _brief(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:200]}…"  # noqa: PLR2004
