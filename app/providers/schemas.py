"""A tool's parameters as providers take them: one schema without references to elsewhere in it."""

from collections.abc import Mapping
from typing import Final

from app.core.canonical import Json
from app.core.toolbox import ToolSpec

_DROPPED: Final = frozenset({"$schema", "$id", "$defs", "definitions", "$comment"})
_DEEPEST: Final = 24


def plain_schema(spec: ToolSpec) -> dict[str, Json]:
    """Return the parameters with local `$ref`s put in place, as an object schema."""
    schema = _inlined(spec.parameters, spec.parameters, ())
    plain = schema if isinstance(schema, dict) else {}
    return {"type": "object", "properties": {}, **plain}


def _inlined(node: Json, root: Mapping[str, Json], path: tuple[str, ...]) -> Json:
    """Return a node without references; one that leads back into itself may be anything."""
    if len(path) > _DEEPEST:
        return {}
    if isinstance(node, list | tuple):
        return [_inlined(item, root, path) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        if reference in path:
            return {}
        target = _inlined(_find(root, reference), root, (*path, reference))
        beside = {k: v for k, v in node.items() if k != "$ref"}
        target = target if isinstance(target, dict) else {}
        return {**target, **_members(beside, root, path)}
    return _members(node, root, path)


def _members(
    node: Mapping[str, Json], root: Mapping[str, Json], path: tuple[str, ...]
) -> dict[str, Json]:
    members: dict[str, Json] = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, Mapping):
            # Names of parameters, which may well be "definitions" or "$id".
            members[key] = {name: _inlined(item, root, path) for name, item in value.items()}
        elif key not in _DROPPED:
            members[key] = _inlined(value, root, path)
    return members


def _find(root: Mapping[str, Json], reference: str) -> Json:
    """Return what a local reference (`#/a/b`) points at; an empty schema when it is not here."""
    if not reference.startswith("#"):
        return {}
    node: Json = root
    for part in reference[1:].strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if name:
            node = node.get(name) if isinstance(node, Mapping) else None
    return {} if node is None else node
