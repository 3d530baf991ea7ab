"""Validation errors in words a model can act on: which parameter, what is wrong, what is expected.

Values are shown short; the whole message is bounded, whatever was sent.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from jsonschema import ValidationError

from app.core.canonical import Json
from app.core.toolbox import nearest

_SHOWN: Final = 3
_LOOKED_AT: Final = 20
_LONGEST_VALUE: Final = 60
_LONGEST_LINE: Final = 400
_BOUNDS: Final = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
    "multipleOf": "a multiple of",
    "minLength": "at least this many characters:",
    "maxLength": "at most this many characters:",
    "minItems": "at least this many items:",
    "maxItems": "at most this many items:",
    "format": "in the format",
    "pattern": "matching",
}


def explain(errors: Iterable[ValidationError]) -> str | None:
    """Return the first few errors as text, or None when there are none."""
    found = list(islice(errors, _LOOKED_AT))
    if not found:
        return None
    found.sort(key=lambda error: len(error.absolute_path))
    lines = [_cut(_line(error), _LONGEST_LINE) for error in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"(and {len(found) - _SHOWN} more)")
    return " ".join(lines)


def _line(error: ValidationError) -> str:
    path = list(error.absolute_path)
    if error.validator == "required":
        return _missing(error, path)
    if error.validator in {"additionalProperties", "unevaluatedProperties"}:
        return _unknown(error, path)
    schema: Json = error.schema
    return f"{_named(path)}: {_wrong(error)}; expected {expected(schema)}."


def _missing(error: ValidationError, path: Sequence[str | int]) -> str:
    needed = _list(error.validator_value)
    given = _mapping(error.instance)
    declared = _mapping(_mapping(error.schema).get("properties"))
    absent = [str(name) for name in needed if name not in given]
    told = [
        f"{_named([*path, n])} is missing; expected {expected(declared.get(n))}" for n in absent
    ]
    return "; ".join(dict.fromkeys(told[:_SHOWN])) + "."


def _unknown(error: ValidationError, path: Sequence[str | int]) -> str:
    declared = _mapping(_mapping(error.schema).get("properties"))
    extra = [str(name) for name in _mapping(error.instance) if name not in declared]
    if not extra:
        return f"{_named(path)}: {_cut(error.message, _LONGEST_VALUE)}."
    close = nearest(extra[0], declared, 1)
    hint = f"; did you mean `{close[0]}`?" if close else "."
    known = ", ".join(f"`{name}`" for name in islice(declared, 10)) or "none"
    return f"{_named([*path, extra[0]])} is not known{hint} Known: {known}."


def _wrong(error: ValidationError) -> str:
    shown = _cut(json.dumps(error.instance, ensure_ascii=False), _LONGEST_VALUE)
    match error.validator:
        case "type":
            return f"{shown} is of the wrong type"
        case "enum" | "const":
            return f"{shown} is not allowed"
        case "pattern" | "format" | "uniqueItems":
            return f"{shown} {_reason(error)}"
        case _:
            return f"{shown} does not fit"


def _reason(error: ValidationError) -> str:
    if error.validator == "format":
        return f"is not a valid {error.validator_value}"
    return error.message


def expected(schema: Json) -> str:
    """Return in words what a schema wants."""
    if not isinstance(schema, Mapping):
        return "a value"
    if "const" in schema:
        return _cut(json.dumps(schema["const"], ensure_ascii=False), _LONGEST_VALUE)
    if isinstance(schema.get("enum"), list):
        values = [json.dumps(v, ensure_ascii=False) for v in _list(schema["enum"])]
        more = ", …" if len(values) > 10 else ""  # noqa: PLR2004 - enough to see the form
        return "one of " + ", ".join(values[:10]) + more
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([_kind(schema), *bounds])


def _kind(schema: Mapping[str, Json]) -> str:
    stated = schema.get("type")
    if isinstance(stated, list):
        return " or ".join(str(kind) for kind in stated)
    if isinstance(stated, str):
        items = _mapping(schema.get("items")).get("type")
        return f"array of {items}" if stated == "array" and isinstance(items, str) else stated
    branches = [expected(b) for k in ("anyOf", "oneOf") for b in _list(schema.get(k))]
    return " or ".join(branches[:5]) if branches else "a value"


def _named(path: Sequence[str | int]) -> str:
    if not path:
        return "The arguments"
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"Parameter `{_cut(text.removeprefix('.'), _LONGEST_VALUE)}`"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
