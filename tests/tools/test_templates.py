"""Requests from templates: no argument can change where they go."""

from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.faults import FaultKind
from app.core.toolbox import HttpTemplate
from app.runtime.errors import ToolFailure
from app.tools.templates import Outgoing, build, secrets_from

_KNOWN = ("id", "q", "city", "n", "tags", "opt")


def made(template: HttpTemplate, secrets: dict[str, str] | None = None, **args: Json) -> Outgoing:
    return build(template, args, known=_KNOWN, secrets=secrets or {})


def url_of(outgoing: Outgoing) -> str:
    target = outgoing.target
    return f"{target.scheme}://{target.authority}{target.resource}"


@pytest.mark.case("C177")
@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("../admin", "..%2Fadmin"),
        ("x?y=1#", "x%3Fy%3D1%23"),
        ("@evil.test/", "%40evil.test%2F"),
        ("a\r\nX: 1", "a%0D%0AX%3A%201"),
        ("\\..\\admin", "%5C..%5Cadmin"),
        ("%2e%2e", "%252e%252e"),
        ("北京", "%E5%8C%97%E4%BA%AC"),
        (7.0, "7"),
        (True, "true"),
    ],
)
def test_a_value_stays_inside_its_segment(value: Json, segment: str) -> None:
    outgoing = made(HttpTemplate("GET", "https://api.test/items/{id}/x"), id=value)
    assert url_of(outgoing) == f"https://api.test/items/{segment}/x"


@pytest.mark.case("C177")
@pytest.mark.parametrize("value", [".", "..", "", " ", None])
def test_a_segment_that_would_vanish_is_refused(value: Json) -> None:
    with pytest.raises(ToolFailure) as failure:
        made(HttpTemplate("DELETE", "https://api.test/items/{id}"), id=value)
    assert failure.value.fault.kind is FaultKind.INVALID_ARGS
    assert "`id`" in failure.value.fault.message
    assert not failure.value.fault.sent


def test_dots_of_two_values_do_not_add_up() -> None:
    with pytest.raises(ToolFailure):
        made(HttpTemplate("GET", "https://api.test/a/{id}{q}/b"), id=".", q=".")


_VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ["../x", "//evil.test", "?a=b", "#", "@evil.test", ":99", "\r\nHost: x", "%00"]
    ),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
)


@given(first=_VALUES, second=_VALUES, third=_VALUES)
def test_no_value_changes_scheme_host_port_or_path_structure(
    first: Json, second: Json, third: Json
) -> None:
    template = HttpTemplate("GET", "https://api.test:8443/a/{id}/pre-{q}/z?k={city}&s=1")
    try:
        outgoing = made(template, id=first, q=second, city=third)
    except ToolFailure as failure:
        assume(failure.fault.kind is not FaultKind.INVALID_ARGS)
        raise
    url = url_of(outgoing)
    split = urlsplit(url)
    assert (split.scheme, split.netloc, split.fragment) == ("https", "api.test:8443", "")
    segments = split.path.split("/")
    assert len(segments) == 5
    assert segments[0] == ""
    assert (segments[1], segments[4]) == ("a", "z")
    assert segments[3].startswith("pre-")
    assert unquote(segments[2]) not in {"", ".", ".."}
    pairs = split.query.split("&")
    assert len(pairs) == 2
    assert pairs[0].startswith("k=")
    assert pairs[1] == "s=1"
    assert url.isascii()
    assert all(32 < ord(c) < 127 for c in url)


@given(value=_VALUES)
def test_query_values_arrive_as_they_are(value: Json) -> None:
    outgoing = made(
        HttpTemplate("GET", "https://api.test/s", query={"q": "{q}", "k": "v"}), q=value
    )
    pairs = parse_qsl(outgoing.target.query, keep_blank_values=True)
    assert pairs[-1] == ("k", "v")
    if isinstance(value, str):
        assert pairs == [("q", value), ("k", "v")]


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_header_value_is_one_line_or_refused(value: str) -> None:
    template = HttpTemplate("GET", "https://api.test/", headers={"X-City": "c={city}"})
    lines = any((ord(c) < 32 and c != "\t") or ord(c) == 127 for c in f"c={value}".strip())
    if lines:
        with pytest.raises(ToolFailure, match="one line"):
            made(template, city=value)
    else:
        text = dict(made(template, city=value).headers)["x-city"]
        assert not {"\r", "\n", "\0"} & set(text)


@pytest.mark.req("TOOL-1")
def test_a_get_without_query_sends_the_remaining_arguments() -> None:
    outgoing = made(
        HttpTemplate("GET", "https://api.test/w/{city}", headers={"X-N": "{n}"}),
        city="Rome",
        n=3,
        q="a b",
        tags=["x", "y"],
        opt=None,
    )
    assert outgoing.target.resource == "/w/Rome?q=a%20b&tags=x&tags=y"
    assert outgoing.headers == (("x-n", "3"),)
    assert outgoing.content == b""


def test_a_query_that_is_given_is_all_that_is_sent() -> None:
    outgoing = made(
        HttpTemplate("GET", "https://api.test/w?v=1&o={opt}", query={"d": "{q}", "o": "{opt}"}),
        q="x",
    )
    assert outgoing.target.resource == "/w?v=1&d=x"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_body_of_null_sends_the_arguments_as_json(method: str) -> None:
    outgoing = made(HttpTemplate(method, "https://api.test/w/{city}"), city="a", n=1, tags=["x"])
    assert outgoing.content == b'{"n":1,"tags":["x"]}'
    assert dict(outgoing.headers) == {"content-type": "application/json"}
    assert outgoing.target.query == ""


def test_an_exact_placeholder_keeps_its_type_and_an_absent_one_drops_its_key() -> None:
    body = {"n": "{n}", "list": ["{tags}", "{opt}"], "text": "n={n} {unknown}", "o": {"p": "{opt}"}}
    outgoing = made(HttpTemplate("POST", "https://api.test/", body=body), n=1.5, tags=["x"])
    assert outgoing.content == b'{"n":1.5,"list":[["x"]],"text":"n=1.5 {unknown}","o":{}}'


def test_forms_and_plain_text_are_sent_as_the_content_type_says() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    outgoing = made(
        HttpTemplate("POST", "https://api.test/", headers=form, body={"a": "{q}"}), q="&="
    )
    assert outgoing.content == b"a=%26%3D"
    plain = {"Content-Type": "text/plain"}
    outgoing = made(HttpTemplate("POST", "https://api.test/", headers=plain, body="<{q}>"), q="x")
    assert outgoing.content == b"<x>"


def test_secrets_are_filled_in_and_remembered() -> None:
    template = HttpTemplate(
        "POST",
        "https://api.test/?key={{secret:b}}",
        headers={"Authorization": "Bearer {{secret:a}}", "X-Plain": "x"},
        body={"k": "{{ secret:c }}"},
    )
    outgoing = made(template, {"a": "AAA", "b": "B&B", "c": "CCC"})
    assert dict(outgoing.headers)["authorization"] == "Bearer AAA"
    assert outgoing.target.query == "key=B%26B"
    assert outgoing.content == b'{"k":"CCC"}'
    assert outgoing.secret_headers == {"authorization"}
    assert set(outgoing.secrets) == {"AAA", "B&B", "CCC"}


def test_a_secret_that_is_not_set_is_not_sent() -> None:
    with pytest.raises(ToolFailure) as failure:
        made(HttpTemplate("GET", "https://api.test/", headers={"X": "{{secret:gone}}"}))
    assert failure.value.fault.kind is FaultKind.PERMISSION
    assert "'gone'" in failure.value.fault.message
    assert not failure.value.fault.sent


def test_an_argument_cannot_ask_for_a_secret() -> None:
    template = HttpTemplate(
        "GET", "https://api.test/{id}", headers={"X": "{q}"}, query={"c": "{city}"}
    )
    ask = "{{secret:a}}"
    outgoing = made(template, {"a": "AAA"}, id=ask, q=ask, city=ask)
    assert outgoing.secrets == ()
    assert "AAA" not in url_of(outgoing) + str(outgoing.headers)


def test_secrets_come_from_the_environment() -> None:
    environ = {"SUREFOOT_SECRET_WEATHER_KEY": "w", "SUREFOOT_SECRET_EMPTY": "", "HOME": "/"}
    assert secrets_from(environ) == {"weather_key": "w"}
