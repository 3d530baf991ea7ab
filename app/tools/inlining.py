"""Local references, replaced by what they stand for."""

from typing import Final
from urllib.parse import unquote

from app.core.canonical import Json
from app.tools.errors import Problem
from app.tools.schema_walk import LISTS, MAPS, SINGLES, token

MOST_NODES: Final = 20_000
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)


def inline(root: dict[str, Json], place: str, errors: list[Problem]) -> dict[str, Json]:
    """Return a normalised schema without `$ref` and `$defs`; problems go to the list."""
    inlined = _Inliner(root, errors).schema(root, place, ("#",))
    return inlined if isinstance(inlined, dict) else {}


class _Inliner:
    """Inlines within one root; a reference into itself, or one that explodes, is an error."""

    def __init__(self, root: dict[str, Json], errors: list[Problem]) -> None:
        self._root = root
        self._errors = errors
        self._nodes = 0

    def schema(self, node: Json, place: str, stack: tuple[str, ...]) -> Json:
        """Return a schema with every reference in it resolved; `stack` is what is being so."""
        if not isinstance(node, dict) or self._errors:
            return node
        self._nodes += 1
        if self._nodes > MOST_NODES:
            message = f"expands to more than {MOST_NODES:,} schemas when references are inlined"
            self._errors.append(Problem(place, message))
            return {}
        if "$ref" in node:
            return self._reference(node, place, stack)
        return self._children(node, place, stack)

    def _children(self, node: dict[str, Json], place: str, stack: tuple[str, ...]) -> Json:
        out: dict[str, Json] = {}
        for key, value in node.items():
            at = f"{place}/{token(key)}"
            if key in {"$defs", "definitions"}:
                continue
            if key in MAPS and isinstance(value, dict):
                out[key] = {n: self.schema(s, f"{at}/{token(n)}", stack) for n, s in value.items()}
            elif key in LISTS and isinstance(value, list):
                out[key] = [self.schema(s, f"{at}/{i}", stack) for i, s in enumerate(value)]
            elif key in SINGLES:
                out[key] = self.schema(value, at, stack)
            else:
                out[key] = value
        return out

    def _reference(self, node: dict[str, Json], place: str, stack: tuple[str, ...]) -> Json:
        pointer = str(node["$ref"])
        if pointer in stack or pointer in {"#", "#/"}:
            message = (
                f"{pointer!r} refers to itself; models are told schemas without references, so "
                "a recursive one has no end"
            )
            self._errors.append(Problem(f"{place}/$ref", message))
            return {}
        target = self._lookup(pointer)
        if not isinstance(target, dict | bool):
            self._errors.append(Problem(f"{place}/$ref", f"{pointer!r} does not exist"))
            return {}
        inlined = self.schema(target, place, (*stack, pointer))
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        if not siblings:
            return inlined
        rest = self._children(siblings, place, stack)
        if not isinstance(rest, dict):
            return inlined
        if isinstance(inlined, dict) and rest.keys() <= _ANNOTATIONS:
            return {**inlined, **rest}
        return {**rest, "allOf": [*_all_of(rest), inlined]}

    def _lookup(self, pointer: str) -> Json:
        node: Json = self._root
        if not pointer.startswith("#/"):
            return None
        for part in unquote(pointer[2:]).split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node


def _all_of(schema: dict[str, Json]) -> list[Json]:
    existing = schema.get("allOf")
    return existing if isinstance(existing, list) else []
