"""A tool's parameter schema: bounded, normalised, and with its references inlined.

What is stored is what models are told and arguments are checked against: wild types are put
right, `$ref`s are replaced by what they stand for (many endpoints take none), `$schema` and its
like are gone. Nothing is ever fetched.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.canonical import Json
from app.core.toolbox import nearest
from app.tools.errors import Problem
from app.tools.hygiene import too_deep
from app.tools.inlining import inline
from app.tools.patterns import PatternError, compiled
from app.tools.schema_checks import drop_bad_defaults, meta_problems
from app.tools.schema_walk import LISTS, MAPS, SINGLES, subschemas, token

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 64
MOST_PROPERTIES: Final = 1000
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_WILD: Final = {
    "dict": "object",
    "map": "object",
    "hashmap": "object",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "tuple": "array",
    "list": "array",
    "set": "array",
    "int": "integer",
    "long": "integer",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "none": "null",
}
_DROPPED: Final = {"$schema", "$id", "$comment", "$vocabulary", "$anchor"}
_REFUSED: Final = {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"}


@dataclass(slots=True)
class Prepared:
    """A schema ready for use, or its errors; warnings say what was changed."""

    schema: dict[str, Json] = field(default_factory=dict)
    errors: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def prepare(parameters: Mapping[str, Json], pointer: str = "/parameters") -> Prepared:
    """Return the schema as it will be stored; `pointer` is where it stands in the body."""
    result = Prepared()
    _measure(parameters, pointer, result)
    if result.errors:
        return result
    normalised = _Normaliser(result).schema(dict(parameters), pointer)
    if result.errors or not isinstance(normalised, dict):
        return result
    root = inline(normalised, pointer, result.errors)
    if not result.errors:
        result.schema = _as_object(root, pointer, result.errors)
        _check(result, pointer)
    return result


def _measure(parameters: Mapping[str, Json], pointer: str, result: Prepared) -> None:
    if too_deep(dict(parameters), MOST_DEPTH):
        result.errors.append(Problem(pointer, f"nested deeper than {MOST_DEPTH} levels"))
        return
    try:
        size = len(json.dumps(parameters, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        result.errors.append(Problem(pointer, "holds NaN, Infinity or a number out of range"))
        return
    if size > MOST_BYTES:
        result.errors.append(Problem(pointer, f"{size:,} bytes; the most is {MOST_BYTES:,}"))


def _as_object(root: dict[str, Json], pointer: str, errors: list[Problem]) -> dict[str, Json]:
    """Return the root as an object's schema: arguments are always an object."""
    kind = root.get("type", "object")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        return {**root, "type": "object", "properties": root.get("properties", {})}
    errors.append(Problem(f"{pointer}/type", f"must be 'object', not {json.dumps(kind)}"))
    return root


def _check(result: Prepared, pointer: str) -> None:
    """Check the finished schema: its form, its patterns, its size and its defaults."""
    result.errors.extend(meta_problems(result.schema, pointer))
    if result.errors:
        return
    properties = 0
    keywords: set[str] = set()
    for place, schema in subschemas(result.schema, pointer):
        declared = schema.get("properties", {})
        properties += len(declared) if isinstance(declared, dict) else 0
        keywords.update(schema)
        result.errors.extend(_pattern_problems(schema, place))
    if properties > MOST_PROPERTIES:
        message = f"{properties:,} properties; the most is {MOST_PROPERTIES:,}"
        result.errors.append(Problem(pointer, message))
    if {"unevaluatedProperties", "patternProperties"} <= keywords:
        message = "'unevaluatedProperties' together with 'patternProperties' is not supported"
        result.errors.append(Problem(pointer, message))
    if not result.errors:
        drop_bad_defaults(result.schema, pointer, result.warnings)


def _pattern_problems(schema: Mapping[str, Json], place: str) -> Iterator[Problem]:
    named = schema.get("patternProperties", {})
    patterns = [(f"{place}/patternProperties", p) for p in named] if isinstance(named, dict) else []
    single = schema.get("pattern")
    if isinstance(single, str):
        patterns.append((f"{place}/pattern", single))
    for at, pattern in patterns:
        try:
            compiled(pattern)
        except PatternError as error:
            message = (
                f"the pattern {pattern!r} is not taken: {error} (patterns run in a linear-time "
                "engine, without lookaround and backreferences)"
            )
            yield Problem(at, message)


class _Normaliser:
    """Puts right what is common in the wild and refuses what cannot be understood."""

    def __init__(self, result: Prepared) -> None:
        self._result = result

    def schema(self, node: Json, place: str) -> Json:
        """Return a schema normalised, its subschemas too."""
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self._error(place, "must be a schema: an object or a boolean")
            return {}
        out: dict[str, Json] = {}
        for key, value in node.items():
            if key in _REFUSED:
                self._error(f"{place}/{key}", f"'{key}' is not supported")
            elif key not in _DROPPED:
                self._keyword(out, key, value, f"{place}/{token(key)}")
        self._lift_required(out, node)
        return self._nullable(out, place)

    def _keyword(self, out: dict[str, Json], key: str, value: Json, place: str) -> None:
        if key == "type":
            self._type(out, value, place)
        elif key == "$ref":
            self._reference(out, value, place)
        elif key in MAPS and isinstance(value, dict):
            out[key] = {n: self.schema(s, f"{place}/{token(n)}") for n, s in value.items()}
        elif (key in LISTS or key == "items") and isinstance(value, list):
            name = "prefixItems" if key == "items" else key
            out[name] = [self.schema(s, f"{place}/{i}") for i, s in enumerate(value)]
        elif key in SINGLES:
            out[key] = self.schema(value, place)
        elif key == "required" and isinstance(value, bool):
            self._warn(f"{place}: 'required' as a boolean is read as the parent's list")
        else:
            out[key] = value

    def _type(self, out: dict[str, Json], value: Json, place: str) -> None:
        names = value if isinstance(value, list) else [value]
        known = [self._one_type(name, place) for name in names]
        if None in known:  # anything is allowed
            return
        unique = list(dict.fromkeys(known))
        out["type"] = unique if isinstance(value, list) and len(unique) != 1 else unique[0]

    def _one_type(self, name: Json, place: str) -> str | None:
        if name in TYPES:
            return str(name)
        lowered = name.lower() if isinstance(name, str) else ""
        if lowered == "any":
            self._warn(f"{place}: type {name!r} is read as no type")
            return None
        meant = lowered if lowered in TYPES else _WILD.get(lowered)
        if meant is None:
            close = nearest(lowered, TYPES, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            self._error(place, f"{json.dumps(name)} is not a JSON Schema type{hint}")
            return "string"
        self._warn(f"{place}: type {name!r} is read as {meant!r}")
        return meant

    def _reference(self, out: dict[str, Json], value: Json, place: str) -> None:
        if isinstance(value, str) and value.startswith("#"):
            out["$ref"] = value
            return
        message = f"{json.dumps(value)} is outside this schema; only local '#/…' are followed"
        self._error(place, message)

    def _lift_required(self, out: dict[str, Json], node: Mapping[str, Json]) -> None:
        declared = node.get("properties")
        if not isinstance(declared, dict):
            return
        lifted = [
            n for n, s in declared.items() if isinstance(s, dict) and s.get("required") is True
        ]
        listed = out.get("required", [])
        if lifted and isinstance(listed, list):
            out["required"] = list(dict.fromkeys([*listed, *lifted]))

    def _nullable(self, out: dict[str, Json], place: str) -> dict[str, Json]:
        if out.pop("nullable", None) is True and isinstance(out.get("type"), str):
            out["type"] = [out["type"], "null"]
            self._warn(f"{place}: 'nullable' is read as the type 'null' besides")
        return out

    def _error(self, place: str, message: str) -> None:
        self._result.errors.append(Problem(place, message))

    def _warn(self, message: str) -> None:
        self._result.warnings.append(message)
