"""Registration: what is accepted, put right, refused, and how it says so."""

import re
from typing import cast

import pytest

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.toolbox import ToolKind
from app.tools.definition import describe, parse
from app.tools.errors import DefinitionError, NotSupportedYetError

_BODY: dict[str, Json] = {
    "name": "get_weather",
    "kind": "http",
    "description": "Get the weather of a city. Use it for forecasts. Returns degrees.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "City name"}},
        "required": ["city"],
    },
    "http": {"method": "GET", "url": "https://api.test/weather/{city}"},
    "effect": "read",
}


def body(**changes: Json) -> dict[str, Json]:
    return {**_BODY, **changes}


def http(**changes: Json) -> dict[str, Json]:
    return body(http={**cast("dict[str, Json]", _BODY["http"]), **changes})


def errors(wrong: dict[str, Json], **options: str) -> dict[str, str]:
    """Return the problems of a body by pointer."""
    with pytest.raises(DefinitionError) as raised:
        parse(wrong, **options)  # type: ignore[arg-type]
    return {problem.pointer: problem.message for problem in raised.value.errors}


@pytest.mark.req("TOOL-1", "API-5")
def test_a_definition_becomes_a_spec_with_the_defaults_of_the_contract() -> None:
    definition = parse(_BODY, version=3)
    spec = definition.spec
    assert (spec.name, spec.version, spec.kind) == ("get_weather", 3, ToolKind.HTTP)
    assert (spec.effect, spec.timeout_s, spec.max_attempts) == (EffectClass.READ, None, 3)
    assert (spec.max_chars, spec.enabled, spec.alias, spec.polling) == (2000, True, None, False)
    assert spec.wire_name == "get_weather"
    assert definition.lint.score == 100
    assert definition.lint.warnings == ()


def test_effect_is_once_when_not_given_and_lint_says_what_that_means() -> None:
    definition = parse({k: v for k, v in _BODY.items() if k != "effect"})
    assert definition.spec.effect is EffectClass.ONCE
    assert "/effect" in definition.lint.warnings[0]


def test_what_is_shown_can_be_registered_again() -> None:
    spec = parse(_BODY).spec
    shown = describe(spec)
    again = {key: value for key, value in shown.items() if key not in {"version", "alias"}}
    assert parse(again).spec == spec


def test_unknown_and_ill_typed_fields_are_named_with_their_place() -> None:
    wrong = body(efect="read", max_attempts="3", result={"max_chars": 0}, timeout_s=-1)
    found = errors(wrong)
    assert found["/efect"] == "unknown field; did you mean 'effect'?"
    assert {"/max_attempts", "/result/max_chars", "/timeout_s"} <= found.keys()


def test_a_name_in_the_path_stands_for_one_in_the_body() -> None:
    without = {k: v for k, v in _BODY.items() if k != "name"}
    assert parse(without, name="get_weather").spec.name == "get_weather"
    assert "not renamed" in errors(_BODY, name="other")["/name"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fallback", "other"),
        ("rules", [{"expr": "true", "message": "m"}]),
        ("result.select", {"select": "a"}),
        ("result.views", {"views": {"v": "a"}}),
        ("result.template", {"template": "t"}),
        ("cache_ttl_s", 5),
        ("concurrency", 1),
        ("per_minute", 1),
    ],
)
def test_fields_that_are_not_built_are_refused_not_ignored(field: str, value: Json) -> None:
    with pytest.raises(NotSupportedYetError) as raised:
        parse(body(**{field.partition(".")[0]: value}))
    assert raised.value.field == field


@pytest.mark.parametrize("kind", ["mcp", "openapi", "agent"])
def test_kinds_that_are_not_built_say_so(kind: str) -> None:
    with pytest.raises(NotSupportedYetError, match="'kind'"):
        parse({k: v for k, v in body(kind=kind).items() if k != "http"})


def test_defaults_of_what_is_not_built_are_accepted() -> None:
    parse(
        body(
            approval="never",
            fallback=None,
            rules=[],
            result={"select": None, "views": {}, "template": None, "max_chars": 10},
            cache_ttl_s=0,
            concurrency=None,
            per_minute=None,
            status_check=None,
        )
    )


def test_kinds_are_checked() -> None:
    assert "already" in errors(body(kind="builtin"))["/kind"]
    assert "one of http" in errors(body(kind="soap"))["/kind"]
    assert "/http" in errors({k: v for k, v in _BODY.items() if k != "http"})


@pytest.mark.case("C107")
@pytest.mark.parametrize("name", ["shop.find", "Order Desk", "搜索", "a" * 65, "x" * 200, "工具.a"])
def test_names_that_providers_refuse_get_an_alias(name: str) -> None:
    spec = parse(body(name=name)).spec
    assert spec.name == name
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec.wire_name)
    assert spec.wire_name != name
    assert spec.wire_name == parse(body(name=name)).spec.wire_name


def test_aliases_of_different_names_differ() -> None:
    names = ["a.b", "a b", "a_b", "a..b", "搜索", "查询"]
    assert len({parse(body(name=name)).spec.wire_name for name in names}) == len(names)


@pytest.mark.case("C107")
@pytest.mark.parametrize(
    "name", ["", "  ", "x" * 201, "a\nb", " a", "a/b", "..", "calculate", "finish", "read_artifact"]
)
def test_names_that_cannot_be_used_are_refused(name: str) -> None:
    assert "/name" in errors(body(name=name))


@pytest.mark.case("C177")
@pytest.mark.parametrize(
    "url",
    [
        "https://{city}/x",
        "https://{city}.api.test/x",
        "https://api.test:{city}/x",
        "{city}://api.test/x",
        "https://user:pw@api.test/",
        "https://user@api.test/{city}",
        "ftp://api.test/",
        "file:///etc/passwd",
        "gopher://api.test/",
        "//api.test/x",
        "https:///x",
        "https://api.test:99999/",
        "https://api.test/a b",
        "https://api.test\\@evil.test/",
        "https://api.test/#x",
        "https://api.test/{cty}",
        "https://api.test/{{secret:k}}/x",
    ],
)
def test_a_url_must_have_a_fixed_plain_origin(url: str) -> None:
    assert "/http/url" in errors(http(url=url))


@pytest.mark.parametrize(
    "url",
    [
        "https://api.test",
        "HTTP://API.test:8080/{city}?a={city}",
        "http://[::1]:80/",
        "http://bücher.test/",
    ],
)
def test_plain_urls_are_accepted(url: str) -> None:
    parse(http(url=url))


def test_headers_are_checked() -> None:
    found = errors(
        http(headers={"Host": "x", "Bad Name": "x", "X": "a\r\nY: b", "Z": "{nope}", "TE": "x"})
    )
    places = {f"/http/headers/{name}" for name in ("Host", "Bad Name", "X", "Z", "TE")}
    assert places == found.keys()
    assert "no parameter" in found["/http/headers/Z"]


def test_a_placeholder_that_is_nearly_a_parameter_is_named() -> None:
    assert errors(http(query={"c": "{citty}"}))["/http/query/c"].endswith("did you mean '{city}'?")


@pytest.mark.req("TOOL-5")
def test_lint_names_what_could_be_better() -> None:
    properties = {f"p{i}": {"type": "string"} for i in range(11)}
    definition = parse(
        body(
            description="Does it",
            parameters={"properties": properties},
            http={"method": "DELETE", "url": "https://x.test/{p0}"},
            sensitive=["nope"],
        )
    )
    text = "\n".join(definition.lint.warnings)
    for part in (
        "too short",
        "p3: has no description",
        "11 parameters",
        "DELETE",
        "'nope'",
        "path",
    ):
        assert part in text
    assert definition.lint.score == 0


@pytest.mark.case("C116", "C118")
def test_texts_of_a_definition_are_cleaned() -> None:
    spec = parse(body(description="Gets \0 and \ud83c. Returns when.")).spec
    assert spec.description == "Gets \ufffd and \ufffd. Returns when."


@pytest.mark.case("C175")
def test_a_body_nested_too_deep_is_refused() -> None:
    nested: Json = {}
    for _ in range(5000):
        nested = {"a": nested}
    assert "deeper" in errors(body(parameters=nested))[""]
