"""JSON Schema 2020-12 with every keyword linear in time: patterns by RE2, formats by hand.

The stock keywords run Python's backtracking `re` over instances, also inside
`additionalProperties`, compare array items pairwise for `uniqueItems`, and divide in binary for
`multipleOf`.
"""

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final, Protocol, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from app.core.canonical import Json
from app.tools.formats import FORMATS
from app.tools.patterns import compiled


class Validator(Protocol):
    """The part of a jsonschema validator that is used here."""

    def is_valid(self, instance: Json) -> bool:
        """Return whether the instance fits."""

    def iter_errors(self, instance: Json) -> Iterator[ValidationError]:
        """Yield what does not fit."""

    def descend(
        self, instance: Json, schema: Json, path: object = None, schema_path: object = None
    ) -> Iterator[ValidationError]:
        """Yield what does not fit in a part of the instance."""


def _pattern(
    _validator: Validator, pattern: str, instance: Json, _schema: Json
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not compiled(pattern).search(instance):
        yield ValidationError(f"does not match the pattern {pattern!r}")


def _pattern_properties(
    validator: Validator, patterns: Mapping[str, Json], instance: Json, _schema: Json
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, schema in patterns.items():
        regex = compiled(pattern)
        for key, value in instance.items():
            if regex.search(key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Validator, allowed: Json, instance: Json, schema: Mapping[str, Json]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    declared = cast("Mapping[str, Json]", schema.get("properties", {}))
    patterns = cast("Mapping[str, Json]", schema.get("patternProperties", {}))
    regexes = [compiled(pattern) for pattern in patterns]
    extras = [
        key for key in instance if key not in declared and not any(r.search(key) for r in regexes)
    ]
    if isinstance(allowed, dict):
        for key in extras:
            yield from validator.descend(instance[key], allowed, path=key)
    elif allowed is False and extras:
        yield ValidationError(", ".join(repr(key) for key in extras[:5]) + " not allowed here")


def _unique_items(
    _validator: Validator, unique: Json, instance: Json, _schema: Json
) -> Iterator[ValidationError]:
    if unique is True and isinstance(instance, list):
        keys = {json.dumps(_comparable(item), sort_keys=True) for item in instance}
        if len(keys) < len(instance):
            yield ValidationError("has items that are equal to each other")


def _comparable(value: Json) -> Json:
    """Return a value in which equal numbers (1 and 1.0) look equal."""
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple_of(
    _validator: Validator, step: Json, instance: Json, _schema: Json
) -> Iterator[ValidationError]:
    """Check as the numbers are written: in binary, 19.99 is no multiple of 0.01."""
    if isinstance(instance, bool) or not isinstance(instance, int | float):
        return
    if (Fraction(repr(instance)) / Fraction(repr(step))).denominator != 1:
        yield ValidationError(f"is not a multiple of {step}")


_Linear: Final = extend(  # type: ignore[no-untyped-call]  # typed in part only
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
    },
)
_NOWHERE: Final[Registry[Json]] = Registry()


def validator_for(schema: Mapping[str, Json]) -> Validator:
    """Return a validator for a schema; a reference in it leads nowhere, nothing is fetched."""
    made = _Linear(dict(schema), registry=_NOWHERE, format_checker=FORMATS)
    return cast("Validator", made)
