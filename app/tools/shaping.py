"""Arguments brought into the form their schema means, before they are validated.

Three habits of models are forgiven: null for an optional parameter that takes no null, an object
or array written as JSON text, and leaving a default to be filled in. Nothing else is guessed.
"""

import copy
from collections.abc import Mapping

from app.core.canonical import Json
from app.tools.hygiene import read_json

_NESTED = {"object", "array"}


def shape(value: Json, schema: Json) -> Json:
    """Return a value shaped by its schema; the value given is not changed."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, str):
        value = _parsed(value, schema)
    if isinstance(value, dict):
        value = _object(value, schema)
    elif isinstance(value, list):
        value = _array(value, schema)
    for branch in _branches(schema, "allOf"):
        value = shape(value, branch)
    return value


def _object(value: dict[str, Json], schema: Mapping[str, Json]) -> Json:
    declared = _mapping(schema.get("properties"))
    if not declared:
        return value
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    out: dict[str, Json] = {}
    for name, item in value.items():
        inner = declared.get(name)
        if item is None and inner is not None and name not in needed and not takes_null(inner):
            continue
        out[name] = item if inner is None else shape(item, inner)
    for name, inner in declared.items():
        if name not in out and isinstance(inner, Mapping) and "default" in inner:
            out[name] = shape(copy.deepcopy(inner["default"]), inner)
    return out


def _array(value: list[Json], schema: Mapping[str, Json]) -> Json:
    prefix = _branches(schema, "prefixItems")
    rest = schema.get("items")
    return [
        shape(item, prefix[index] if index < len(prefix) else rest)
        for index, item in enumerate(value)
    ]


def _parsed(value: str, schema: Mapping[str, Json]) -> Json:
    """Return what a text means where only an object or array can be meant."""
    text = value.strip()
    if not text.startswith(("{", "[")):
        return value
    wanted = kinds(schema)
    if wanted is None or "string" in wanted or not wanted & _NESTED:
        return value
    try:
        meant, _ = read_json(text, strict=True)
    except ValueError:
        return value
    kind = "object" if isinstance(meant, dict) else "array"
    return meant if kind in wanted else value


def kinds(schema: Json) -> frozenset[str] | None:
    """Return the types a schema allows as far as it says so; None: any."""
    if not isinstance(schema, Mapping):
        return None
    stated = schema.get("type")
    if isinstance(stated, str):
        return frozenset({stated})
    if isinstance(stated, list):
        return frozenset(str(kind) for kind in stated)
    for keyword in ("anyOf", "oneOf"):
        branches = [kinds(branch) for branch in _branches(schema, keyword)]
        if branches and all(branch is not None for branch in branches):
            return frozenset[str]().union(*(b for b in branches if b is not None))
    for branch in _branches(schema, "allOf"):
        found = kinds(branch)
        if found is not None:
            return found
    return None


def takes_null(schema: Json) -> bool:
    """Return whether null is among what a schema allows."""
    if not isinstance(schema, Mapping):
        return schema is not False
    listed = schema.get("enum")
    if isinstance(listed, list) and None not in listed:
        return False
    if schema.get("const", None) is not None:
        return False
    wanted = kinds(schema)
    return wanted is None or "null" in wanted


def _branches(schema: Mapping[str, Json], keyword: str) -> list[Json]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
