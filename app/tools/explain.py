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
from app.runtime.refusals import FieldFault
from app.tools.schema_walk import token

_SHOWN: Final = 3
_LOOKED_AT: Final = 20
_LONGEST_VALUE: Final = 60
_LONGEST_LINE: Final = 400
_UNKNOWN: Final = frozenset({"additionalProperties", "unevaluatedProperties"})
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


def explain(errors: Iterable[ValidationError]) -> tuple[str, tuple[FieldFault, ...]] | None:
    """Return the first few errors as text and each with its pointer; None when there are none."""
    found = list(islice(errors, _LOOKED_AT))
    if not found:
        return None
    found.sort(key=lambda error: len(error.absolute_path))
    lines = [_cut(_line(error), _LONGEST_LINE) for error in found[:_SHOWN]]
    faults = tuple(map(FieldFault, map(_pointer, found), lines))
    if len(found) > _SHOWN:
        lines.append(f"(and {len(found) - _SHOWN} more)")
    return " ".join(lines), faults


def _pointer(error: ValidationError) -> str:
    """Return where an error is: a parameter that is missing or unknown has a place too."""
    path = [str(part) for part in error.absolute_path]
    if error.validator == "required":
        path.extend(_absent(error)[:1])
    elif error.validator in _UNKNOWN:
        path.extend(_extra(error)[:1])
    return "".join(f"/{token(part)}" for part in path)


def _line(error: ValidationError) -> str:
    path = list(error.absolute_path)
    if error.validator == "required":
        return _missing(error, path)
    if error.validator in _UNKNOWN:
        return _unknown(error, path)
    schema: Json = error.schema
    return f"{_named(path)}: {_wrong(error)}; expected {expected(schema)}."


def _missing(error: ValidationError, path: Sequence[str | int]) -> str:
    declared = _mapping(_mapping(error.schema).get("properties"))
    told = [
        f"{_named([*path, n])} is missing; expected {expected(declared.get(n))}"
        for n in _absent(error)
    ]
    return "; ".join(dict.fromkeys(told[:_SHOWN])) + "."


def _unknown(error: ValidationError, path: Sequence[str | int]) -> str:
    declared = _mapping(_mapping(error.schema).get("properties"))
    extra = _extra(error)
    if not extra:
        return f"{_named(path)}: {_cut(error.message, _LONGEST_VALUE)}."
    close = nearest(extra[0], declared, 1)
    hint = f"; did you mean `{close[0]}`?" if close else "."
    known = ", ".join(f"`{name}`" for name in islice(declared, 10)) or "none"
    return f"{_named([*path, extra[0]])} is not known{hint} Known: {known}."


def _absent(error: ValidationError) -> list[str]:
    given = _mapping(error.instance)
    return [str(name) for name in _list(error.validator_value) if name not in given]


def _extra(error: ValidationError) -> list[str]:
    declared = _mapping(_mapping(error.schema).get("properties"))
    return [str(name) for name in _mapping(error.instance) if name not in declared]


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
