"""Where schemas stand inside a schema: the one table of it."""

from collections.abc import Iterator, Mapping
from typing import Final

from app.core.canonical import Json

MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLES: Final = frozenset(
    {
        "items",
        "additionalProperties",
        "additionalItems",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contains",
        "contentSchema",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
    }
)


def token(key: str) -> str:
    """Return a key as a JSON pointer writes it."""
    return key.replace("~", "~0").replace("/", "~1")


def children(schema: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the schemas directly inside a schema, each with its pointer from there."""
    for key, value in schema.items():
        if key in SINGLES:
            yield key, value
        elif key in MAPS and isinstance(value, dict):
            yield from ((f"{key}/{token(name)}", item) for name, item in value.items())
        elif key in LISTS and isinstance(value, list):
            yield from ((f"{key}/{index}", item) for index, item in enumerate(value))


def subschemas(schema: dict[str, Json], place: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield a schema and all below it that are objects, with their pointers."""
    todo: list[tuple[str, Json]] = [(place, schema)]
    while todo:
        at, node = todo.pop()
        if isinstance(node, dict):
            yield at, node
            todo.extend((f"{at}/{part}", child) for part, child in children(node))
