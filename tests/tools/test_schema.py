"""Parameter schemas: normalised, bounded, inlined, and safe to run."""

import time

import pytest

from app.core.canonical import Json
from app.tools.schema import Prepared, prepare


def schema(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties}


def messages(prepared: Prepared) -> str:
    return "\n".join(f"{e.pointer}: {e.message}" for e in prepared.errors)


def good(parameters: dict[str, Json]) -> dict[str, Json]:
    prepared = prepare(parameters)
    assert prepared.errors == []
    return prepared.schema


def test_types_of_the_wild_are_put_right_with_a_warning() -> None:
    wild: dict[str, Json] = {
        "type": "dict",
        "properties": {
            "a": {"type": "float"},
            "b": {"type": "tuple", "items": {"type": "int"}},
            "c": {"type": "any", "description": "x"},
            "d": {"type": ["STRING", "none"]},
            "e": {"type": "string", "nullable": True},
            "f": {"type": "array", "items": [{"type": "bool"}]},
            "g": {"type": "string", "required": True},
            "h": {"type": "string", "required": False},
        },
    }
    prepared = prepare(wild)
    assert prepared.errors == []
    assert prepared.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "b": {"type": "array", "items": {"type": "integer"}},
            "c": {"description": "x"},
            "d": {"type": ["string", "null"]},
            "e": {"type": ["string", "null"]},
            "f": {"type": "array", "prefixItems": [{"type": "boolean"}]},
            "g": {"type": "string"},
            "h": {"type": "string"},
        },
        "required": ["g"],
    }
    assert "/parameters/properties/a/type: type 'float' is read as 'number'" in prepared.warnings


@pytest.mark.case("C091")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"type": "strin"},
            "/parameters/type: \"strin\" is not a JSON Schema type; did you mean 'string'?",
        ),
        ({"type": "string"}, "/parameters/type: must be 'object'"),
        (schema(a={"type": 5}), "/parameters/properties/a/type: 5 is not"),
        (schema(a="string"), "/parameters/properties/a: must be a schema"),
        (schema(a={"enum": "x"}), "/parameters/properties/a/enum"),
        (schema(a={"minimum": "x"}), "/parameters/properties/a/minimum"),
        ({"properties": []}, "/parameters/properties"),
        ({"required": "a"}, "/parameters/required"),
        (schema(a={"default": float("nan")}), "NaN"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(
    parameters: dict[str, Json], message: str
) -> None:
    assert message in messages(prepare(parameters))


def test_nothing_given_means_no_parameters() -> None:
    assert good({}) == {"type": "object", "properties": {}}


@pytest.mark.case("C093")
def test_references_are_inlined() -> None:
    item: dict[str, Json] = {**schema(id={"type": "integer"}), "required": ["id"]}
    prepared = good(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"Item": item, "A/b": {"type": "string"}},
            **schema(
                items={"type": "array", "items": {"$ref": "#/$defs/Item"}},
                note={"anyOf": [{"type": "string"}, {"type": "null"}]},
                one={"$ref": "#/$defs/Item", "description": "one"},
                both={"$ref": "#/$defs/Item", "properties": {"x": {}}},
                text={"$ref": "#/$defs/A~1b"},
            ),
        }
    )
    assert prepared == schema(
        items={"type": "array", "items": item},
        note={"anyOf": [{"type": "string"}, {"type": "null"}]},
        one={**item, "description": "one"},
        both={"properties": {"x": {}}, "allOf": [item]},
        text={"type": "string"},
    )


@pytest.mark.case("C093")
@pytest.mark.parametrize(
    "parameters",
    [
        {**schema(a={"$ref": "#/$defs/N"}), "$defs": {"N": schema(n={"$ref": "#/$defs/N"})}},
        schema(a={"$ref": "#"}),
        {
            **schema(a={"$ref": "#/$defs/A"}),
            "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        },
        schema(a={"$ref": "#/properties/a"}),
    ],
)
def test_a_recursive_reference_is_refused_clearly(parameters: dict[str, Json]) -> None:
    assert "refers to itself" in messages(prepare(parameters))


def test_references_that_explode_are_refused_quickly() -> None:
    defs: dict[str, Json] = {"d0": {"type": "string"}}
    for level in range(1, 40):
        ref = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"allOf": [ref, ref]}
    started = time.process_time()
    found = messages(prepare({**schema(a={"$ref": "#/$defs/d39"}), "$defs": defs}))
    assert "expands to more than" in found
    assert time.process_time() - started < 1


def test_a_dangling_reference_is_refused() -> None:
    assert "'#/$defs/x' does not exist" in messages(prepare(schema(a={"$ref": "#/$defs/x"})))


@pytest.mark.case("C172")
@pytest.mark.parametrize(
    "parameters",
    [
        {"$ref": "http://127.0.0.1:9/x"},
        schema(a={"$ref": "http://127.0.0.1:9/x"}),
        schema(a={"items": {"anyOf": [{"$ref": "file:///etc/passwd"}]}}),
        schema(a={"$dynamicRef": "http://127.0.0.1:9/x"}),
        {**schema(), "$defs": {"x": {"$ref": "other.json"}}},
    ],
)
def test_remote_references_are_refused(parameters: dict[str, Json]) -> None:
    assert prepare(parameters).errors


@pytest.mark.case("C174")
@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", "(a{100}){100}", "(?<!x)y"])
def test_patterns_outside_the_linear_engine_are_refused_by_name(pattern: str) -> None:
    found = messages(prepare(schema(a={"type": "string", "pattern": pattern})))
    assert f"/parameters/properties/a/pattern: the pattern {pattern!r} is not taken" in found
    assert prepare(schema(a={"patternProperties": {pattern: {}}})).errors


def test_patterns_as_ecma_writes_them_are_taken() -> None:
    good(schema(a={"type": "string", "pattern": r"^[\u4e00-\u9fa5]+\\u\/\d$"}))


@pytest.mark.case("C174")
def test_keywords_that_would_bypass_the_engine_are_refused() -> None:
    bad: Json = {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}
    assert "not supported" in messages(prepare(schema(a=bad)))


@pytest.mark.case("C175")
def test_size_depth_and_count_are_bounded() -> None:
    deep: Json = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    assert "deeper than 64" in messages(prepare(schema(a=deep)))
    many: dict[str, Json] = {f"p{i}": {} for i in range(10_000)}
    assert "10,000 properties" in messages(prepare({"properties": many}))
    assert "bytes" in messages(prepare(schema(a={"description": "x" * 20_000_000})))


def test_a_default_that_breaks_its_own_schema_is_dropped() -> None:
    prepared = prepare(
        schema(a={"type": "integer", "default": "ten"}, b={"type": "string", "default": None})
    )
    assert prepared.schema == schema(a={"type": "integer"}, b={"type": "string"})
    assert prepared.warnings == [
        "/parameters/properties/a/default: 'ten' does not fit its own schema; dropped"
    ]


def test_words_in_data_are_not_taken_for_keywords() -> None:
    data: Json = {"type": "strin", "$ref": "http://x.test/"}
    parameters = schema(type={"const": data, "default": data}, pattern={"enum": ["("]})
    assert good(parameters) == parameters
