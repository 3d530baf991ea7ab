"""Arguments: what is read, what is forgiven, what is refused, and what the model is told."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.faults import FaultKind
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.ports.tools import Checked
from app.tools.definition import parse
from app.tools.validation import Arguments, provider_schema
from tests.tools.support import answering, json_answer, serving
from tests.tools.test_definition import body

_TEXT: dict[str, Json] = {"text": {"type": "string"}}


def spec_of(properties: dict[str, Json], **rest: Json) -> ToolSpec:
    parameters: dict[str, Json] = {"type": "object", "properties": properties, **rest}
    return parse(body(parameters=parameters, http={"method": "POST", "url": "http://x.test/"})).spec


ECHO = spec_of(_TEXT, required=["text"])


async def read(raw: str, spec: ToolSpec = ECHO) -> Checked:
    return await Arguments().read(spec, raw)


async def refused(raw: str, spec: ToolSpec = ECHO) -> tuple[FaultKind, str]:
    checked = await read(raw, spec)
    assert checked.arguments is None
    assert checked.fault is not None
    assert not checked.fault.sent
    if checked.replay is not None:
        assert isinstance(json.loads(checked.replay), dict)
    return checked.fault.kind, checked.fault.message


@pytest.mark.case("C001", "C096")
@pytest.mark.parametrize("raw", ["", "  ", "null", "{}", "```json\n{}\n```"])
async def test_nothing_means_no_arguments(raw: str) -> None:
    checked = await read(raw, spec_of({}))
    assert (checked.arguments, checked.fault) == ({}, None)
    assert checked.replay == (None if raw == "{}" else "{}")


@pytest.mark.case("C034", "C003")
@pytest.mark.parametrize(
    "raw",
    [
        '```json\n{"text":"hi"}\n```',
        '```\n{"text":"hi"}```',
        '"{\\"text\\": \\"hi\\"}"',
        ' {"text":"hi"} ',
        '\n{"text":"hi"}',
    ],
)
async def test_wrapped_objects_are_read(raw: str) -> None:
    checked = await read(raw)
    assert checked.arguments == {"text": "hi"}
    assert json.loads(raw if checked.replay is None else checked.replay) == {"text": "hi"}


async def test_an_object_is_repeated_as_the_model_wrote_it() -> None:
    assert (await read('{ "text" : "h\\u0069" }')).replay is None


@pytest.mark.case("C004")
async def test_a_call_cut_off_is_not_repaired() -> None:
    kind, message = await refused('{"text": "half a sent')
    assert kind is FaultKind.UNREADABLE_CALL
    assert "not valid JSON" in message
    assert (await read('{"text": "half a sent')).replay == "{}"


@pytest.mark.case("C096")
@pytest.mark.parametrize(
    ("raw", "what"),
    [("[1]", "an array"), ("3", "a number"), ('"x"', "a string"), ("true", "a boolean")],
)
async def test_only_an_object_is_taken(raw: str, what: str) -> None:
    kind, message = await refused(raw)
    assert kind is FaultKind.INVALID_ARGS
    assert f"are {what}; expected a JSON object" in message


@pytest.mark.case("C120")
@pytest.mark.parametrize(
    "raw", ['{"text":NaN}', '{"text":[-Infinity]}', '{"text":1e400}', '{"text":' + "9" * 30 + "}"]
)
async def test_numbers_that_are_none_are_refused(raw: str) -> None:
    kind, message = await refused(raw)
    assert kind is FaultKind.UNREADABLE_CALL
    assert "out of range" in message


@pytest.mark.case("C116", "C118")
async def test_nul_and_lone_surrogates_are_replaced_and_pairs_kept() -> None:
    checked = await read('{"text":"a\\u0000b\\udf78 \\ud83d\\ude00"}')
    assert checked.arguments == {"text": "a\ufffdb\ufffd \U0001f600"}
    assert checked.replay == '{"text":"a\ufffdb\ufffd \U0001f600"}'
    checked = await read('{"text":"x\ud83c"}')
    assert checked.arguments == {"text": "x\ufffd"}
    assert checked.replay is not None
    checked.replay.encode()


@pytest.mark.case("C037")
async def test_nested_json_text_is_parsed_where_only_json_can_be_meant() -> None:
    plan = spec_of({"steps": {"type": "array"}, "o": {"type": ["object", "null"]}, **_TEXT})
    checked = await read('{"steps":"[{\\"a\\":1}]","o":"{}","text":"[1]"}', plan)
    assert checked.arguments == {"steps": [{"a": 1}], "o": {}, "text": "[1]"}
    assert (await refused('{"steps":"[NaN]"}', plan))[0] is FaultKind.INVALID_ARGS


@pytest.mark.case("C094")
async def test_null_for_an_optional_parameter_is_left_out() -> None:
    nullable: Json = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    spec = spec_of(
        {
            "q": {"type": "string"},
            "cursor": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "note": nullable,
            "list": {"type": "array", "items": {"properties": {"x": {"type": "integer"}}}},
        },
        required=["q"],
    )
    raw = '{"q":"a","cursor":null,"kind":null,"note":null,"list":[{"x":null}]}'
    assert (await read(raw, spec)).arguments == {"q": "a", "note": None, "list": [{}]}
    assert "`q`" in (await refused('{"q":null}', spec))[1]


@pytest.mark.case("C095")
async def test_defaults_are_applied_at_every_level() -> None:
    deep: Json = {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}}
    spec = spec_of({"limit": {"type": "integer", "default": 25}, "opts": deep})
    assert (await read("{}", spec)).arguments == {"limit": 25}
    assert (await read('{"opts":{}}', spec)).arguments == {"limit": 25, "opts": {"deep": True}}
    assert (await read('{"limit":3}', spec)).arguments == {"limit": 3}


async def test_defaults_are_not_shared_between_calls() -> None:
    reader = Arguments()
    spec = spec_of({"o": {"type": "object", "default": {"tags": []}}})
    first = (await reader.read(spec, "{}")).arguments
    assert first is not None
    assert isinstance(first["o"], dict)
    first["o"]["tags"].append("x")
    assert (await reader.read(spec, "{}")).arguments == {"o": {"tags": []}}


async def test_shaping_looks_into_combined_schemas() -> None:
    number: Json = {"allOf": [{"properties": {"n": {"type": "integer", "default": 7}}}]}
    either: Json = {"oneOf": [{"type": "array"}, {"type": "object"}]}
    spec = spec_of(
        {
            "a": number,
            "b": either,
            "c": {"allOf": [{"type": "integer"}]},
            "d": {"const": 1},
            "e": True,
            "f": {"anyOf": [{"type": "string"}, {}]},
            "g": {"type": "array", "prefixItems": [{"type": "array"}], "items": {"type": "array"}},
        }
    )
    raw = '{"a":{},"b":"[1]","c":null,"d":null,"e":null,"f":"[1]","g":["[1]","[2]","x["]}'
    checked = await read(raw.replace(',"x["', ""), spec)
    assert checked.arguments == {
        "a": {"n": 7},
        "b": [1],
        "e": None,
        "f": "[1]",
        "g": [[1], [2]],
    }
    assert "`g[2]`" in (await refused(raw, spec))[1]


async def test_keyword_variants_are_enforced() -> None:
    spec = spec_of(
        {
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "pats": {"type": "object", "patternProperties": {"^n": {"type": "integer"}}},
            "both": {
                "type": "object",
                "properties": {"a": {}},
                "patternProperties": {"^x": {}},
                "additionalProperties": False,
            },
            "one": {"const": "k"},
            "two": {"type": ["integer", "null"]},
        }
    )
    good = '{"map":{"k":1},"pats":{"n":1,"o":"x"},"both":{"a":1,"xx":2},"one":"k","two":null}'
    assert (await read(good, spec)).fault is None
    for raw, part in (
        ('{"map":{"k":"v"}}', "`map.k`"),
        ('{"pats":{"n1":"v"}}', "`pats.n1`"),
        ('{"both":{"b":1}}', "`both.b` is not known"),
        ('{"one":"x"}', 'expected "k"'),
        ('{"two":"x"}', "expected integer or null"),
    ):
        assert part in (await refused(raw, spec))[1]


@pytest.mark.req("TOOL-2")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("{}", "`city` is missing; expected string."),
        ('{"city":5}', "`city`: 5 is of the wrong type; expected string."),
        ('{"city":"a","n":99}', "`n`: 99 does not fit; expected integer, ≥ 1, ≤ 50."),
        ('{"city":"a","u":"k"}', '`u`: "k" is not allowed; expected one of "c", "f".'),
        (
            '{"city":"a","day":"5/1"}',
            '`day`: "5/1" is not a valid date; expected string, in the format date.',
        ),
        (
            '{"city":"a","code":"x"}',
            (
                "`code`: \"x\" does not match the pattern '^[A-Z]+$'; "
                "expected string, matching ^[A-Z]+$."
            ),
        ),
        ('{"city":"a","at":[{"x":"1"}]}', '`at[0].x`: "1" is of the wrong type; expected number.'),
        ('{"city":"a","at":5}', "`at`: 5 is of the wrong type; expected array of object."),
        (
            '{"city":"a","cty":"b"}',
            (
                "`cty` is not known; did you mean `city`? "
                "Known: `city`, `n`, `u`, `day`, `code`, `at`."
            ),
        ),
    ],
)
async def test_the_message_names_parameter_problem_and_form(raw: str, message: str) -> None:
    spec = spec_of(
        {
            "city": {"type": "string"},
            "n": {"type": "integer", "minimum": 1, "maximum": 50},
            "u": {"enum": ["c", "f"]},
            "day": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]+$"},
            "at": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "number"}}},
            },
        },
        required=["city"],
        additionalProperties=False,
    )
    assert await refused(raw, spec) == (FaultKind.INVALID_ARGS, f"Parameter {message}")


async def test_a_message_is_bounded_whatever_was_sent() -> None:
    spec = spec_of({f"p{i}": {"type": "integer"} for i in range(50)})
    raw = json.dumps({f"p{i}": "x" * 500 for i in range(50)})
    _, message = await refused(raw, spec)
    assert len(message) < 1000
    assert "more)" in message


@pytest.mark.case("C174")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a+)+$"},
        {"type": "object", "patternProperties": {"^(a+)+$": {"type": "string"}}},
        {
            "type": "object",
            "patternProperties": {"^(a+)+$": {}},
            "additionalProperties": False,
        },
        {"type": "object", "propertyNames": {"pattern": "^(a+)+$"}},
    ],
)
async def test_no_pattern_takes_long(schema: dict[str, Json]) -> None:
    spec = spec_of({"text": schema})
    bad = "a" * 40 + "!"
    raw = json.dumps({"text": bad if schema["type"] == "string" else {bad: 1}})
    started = time.process_time()
    await read(raw, spec)
    assert time.process_time() - started < 0.5


async def test_unique_items_is_linear_and_sees_equal_numbers() -> None:
    spec = spec_of({"text": {"type": "array", "uniqueItems": True}})
    started = time.process_time()
    items: list[Json] = [{"a": i} for i in range(30_000)]
    assert (await read(json.dumps({"text": items}), spec)).fault is None
    assert time.process_time() - started < 3
    assert "equal" in (await refused('{"text":[{"a":1},{"a":1.0}]}', spec))[1]
    assert (await read('{"text":[1,true,"1"]}', spec)).fault is None


@pytest.mark.case("C175")
async def test_deep_and_huge_arguments_are_refused() -> None:
    assert "deeper" in (await refused("[" * 50_000))[1]
    assert "deeper" in (await refused('{"a":' * 150 + "1" + "}" * 150))[1]
    assert "1,000,001 characters" in (await refused(" " * 1_000_001))[1]
    wide = spec_of({f"p{i}": {} for i in range(900)})
    assert "too many for" in (await refused(json.dumps({"p1": "x" * 200_000}), wide))[1]


@pytest.mark.case("C149")
async def test_long_arguments_do_not_block_the_loop() -> None:
    spec = spec_of({"text": {"type": "array", "items": {"type": "integer", "minimum": 0}}})
    raw = json.dumps({"text": list(range(60_000))})
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(read(raw, spec))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    assert task.result().fault is None
    assert turns > 5, "the loop ran on while the arguments were read"


@pytest.mark.case("C172")
async def test_nothing_is_fetched_even_for_a_schema_that_was_never_checked() -> None:
    async with serving(answering(json_answer("{}"))) as canary:
        parameters: dict[str, Json] = {"properties": {"a": {"$ref": f"{canary.url}/x"}}}
        spec = ToolSpec("odd", 1, ToolKind.HTTP, "", parameters)
        assert (await refused('{"a":1}', spec))[0] is FaultKind.INTERNAL
    assert canary.connections == 0


@pytest.mark.case("C093")
async def test_what_a_reference_stood_for_is_enforced() -> None:
    item: Json = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    spec = spec_of(
        {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}}}, **{"$defs": {"Item": item}}
    )
    assert "`items[0].id` is missing" in (await refused('{"items":[{}]}', spec))[1]
    told = json.dumps(provider_schema(spec))
    assert "$ref" not in told
    assert "$defs" not in told


@pytest.mark.case("C091")
def test_endpoints_are_not_told_null_defaults() -> None:
    spec = spec_of({"a": {"description": "x", "default": None}, "default": {"type": "string"}})
    assert provider_schema(spec)["properties"] == {
        "a": {"description": "x"},
        "default": {"type": "string"},
    }
    assert "default" in json.dumps(spec.parameters["properties"])


async def test_two_tools_with_one_name_and_version_are_not_mixed_up() -> None:
    reader = Arguments()
    first, second = spec_of({"a": {"type": "integer"}}), spec_of({"a": {"type": "string"}})
    for _ in range(2):
        assert (await reader.read(first, '{"a":1}')).fault is None
        assert (await reader.read(second, '{"a":1}')).fault is not None


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_replay_that_parses(raw: str) -> None:
    checked = asyncio.run(read(raw, spec_of({})))
    assert (checked.arguments is None) != (checked.fault is None)
    replay = raw if checked.replay is None else checked.replay
    assert isinstance(json.loads(replay), dict)
    replay.encode()


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-01-01T10:00:00Z", "2024-01-01 10:00"),
        ("time", "10:00:00+02:00", "25:00:00Z"),
        ("duration", "P1DT2H", "P"),
        ("email", "a@b.test", "a b@c"),
        ("hostname", "a-b.test", "-a.test"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "::g"),
        ("uri", "https://a.test/x", "a.test/x"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("regex", "^a+$", "("),
    ],
)
async def test_formats_are_checked(format_: str, good: str, bad: str) -> None:
    spec = spec_of({"text": {"type": "string", "format": format_}})
    assert (await read(json.dumps({"text": good}), spec)).fault is None
    assert f"is not a valid {format_}" in (await refused(json.dumps({"text": bad}), spec))[1]
