"""Small values: ids, canonical form, the order of messages, event types, upcasters, tools."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.canonical import action_digest, as_text, canonical, digest
from app.core.events import BODIES, Body, ToolRef, Usage
from app.core.faults import FaultKind
from app.core.ids import call_id, idempotency_key, mint
from app.core.messages import (
    AssistantMessage,
    Message,
    MessageCall,
    ToolMessage,
    UserMessage,
    sequence_fault,
)
from app.core.toolbox import ToolKind, ToolSpec, nearest
from app.core.upcasters import UPCASTERS, UnreadableEventError, upcast

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
USER = UserMessage("hi", 1)


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage("", 1, tuple(MessageCall(i, i, "echo", "{}") for i in ids))


def tells(which: str) -> ToolMessage:
    return ToolMessage(which, which, "echo", "ok", 1)


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=12))
def test_ids_order_by_time(one: int, other: int, entropy: bytes) -> None:
    first, second = (mint("ses", at_us=ms * 1_000, entropy=entropy) for ms in sorted((one, other)))
    assert first <= second
    assert (first == second) is (one == other)
    assert len(first) == len("ses_") + 26


@pytest.mark.req("TOOL-10")
def test_a_call_has_one_id_and_one_key() -> None:
    assert call_id(2, 3, 1) == "t2_c3_1"
    assert idempotency_key("ses_1", "t2_c3_1") == "ses_1:t2_c3_1"


@pytest.mark.req("LOOP-6")
@settings(max_examples=40, deadline=None)
@given(JSON)
def test_the_canonical_form_is_stable(value: object) -> None:
    assert canonical(canonical(value)) == canonical(value)
    assert digest(value) == digest(canonical(value))
    assert digest(json.loads(json.dumps(value))) == digest(value)


@pytest.mark.req("LOOP-6")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0}, True),
        ("caf\u00e9 ", "cafe\u0301", True),
        (1, True, False),
        (1, "1", False),
        ([1, 2], [2, 1], False),
        (0.1, 0.2, False),
        (-0.0, 0, True),
        ("", " \n", True),
        ("a\nb", "a b", False),
    ],
)
def test_what_counts_as_equal(one: object, other: object, *, same: bool) -> None:
    assert (digest(one) == digest(other)) is same


def test_a_digest_takes_what_utf_8_does_not() -> None:
    assert digest("\ud83c") != digest("\ud83d")
    assert digest(float("inf")) != digest(float("-inf"))


@pytest.mark.req("LOOP-6")
def test_an_action_is_its_tool_and_what_counts_of_its_arguments() -> None:
    base = action_digest("search", {"q": "x", "at": 1}, ignore=("at",))
    assert base == action_digest("search", {"q": "x", "at": 2}, ignore=("at",))
    assert base != action_digest("echo", {"q": "x"})
    assert base == action_digest("search", {"q": "x"})


def test_output_as_text() -> None:
    assert as_text("plain") == "plain"
    assert as_text({"k": ["ü", None]}) == '{"k":["ü",null]}'


@pytest.mark.req("CTX-7")
@pytest.mark.case("C042")
@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((USER, asks("a", "b"), tells("b"), tells("a"), AssistantMessage("x", 1)), None),
        ((), None),
        ((USER, tells("a")), "a tool result without its call"),
        ((USER, asks("a"), tells("a"), tells("a")), "a tool result without its call"),
        ((USER, asks("a", "b"), tells("a"), USER), "calls without results (b)"),
        ((USER, asks("b", "a")), "calls without results (a, b)"),
        ((USER, asks("a", "a")), "a call id used twice"),
        ((asks("a"), tells("a"), asks("a"), tells("a")), "a call id used twice"),
    ],
)
def test_the_order_that_a_provider_takes(messages: tuple[Message, ...], said: str | None) -> None:
    fault = sequence_fault(messages)
    if said is None:
        assert fault is None
    else:
        assert fault is not None
        assert fault.kind is FaultKind.INTERNAL
        assert said in fault.message


def test_event_types_are_known_by_their_names_and_frozen() -> None:
    assert all(kind == body.TYPE and body.V >= 1 for kind, body in BODIES.items())
    assert set(BODIES.values()) == set(Body.__args__)
    assert all(dataclasses.fields(body) is not None for body in BODIES.values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Usage().cost = 1.0  # type: ignore[misc]


def test_usage_adds_up() -> None:
    total = Usage(1, 2, 3, 4, 5, 0.5).plus(Usage(10, 20, 30, 40, 50, 0.25, estimated=True))
    assert total == Usage(11, 22, 33, 44, 55, 0.75, estimated=True)
    assert total.tokens == 33


def test_upcasters_lift_step_by_step_or_say_why_not() -> None:
    table = {
        ("x.done", 1): lambda data: {**data, "b": 2},
        ("x.done", 2): lambda data: {"a": data["a"], "c": data["b"]},
    }
    assert upcast("x.done", 1, {"a": 1}, to=3, upcasters=table) == {"a": 1, "c": 2}
    assert upcast("x.done", 3, {"a": 1}, to=3, upcasters=table) == {"a": 1}
    with pytest.raises(UnreadableEventError, match=r"No upcaster reads x\.made version 1"):
        upcast("x.made", 1, {}, to=2, upcasters=table)
    with pytest.raises(UnreadableEventError, match="written by a newer release; this one reads 2"):
        upcast("x.done", 3, {}, to=2)
    assert all(version < BODIES[kind].V for kind, version in UPCASTERS)


@pytest.mark.req("TOOL-7")
@pytest.mark.case("C032")
def test_a_wrong_name_finds_its_nearest() -> None:
    known = ("search", "echo", "research", "pay")
    assert nearest("serch", known)[0] == "search"
    assert nearest("zzz", known) == ()
    alike = ["search1", "search2", "search3", "search4"]
    assert len(nearest("search", alike)) == 3
    assert len(nearest("search", alike, most=2)) == 2
    assert nearest("get_wether_now", ("weather",)) == ("weather",), "half of it is enough"


def test_a_tool_is_pinned_by_version_and_told_by_alias() -> None:
    spec = ToolSpec("shop.find", 3, ToolKind.BUILTIN, "finds", {}, alias="shop_find")
    assert spec.ref == ToolRef("shop.find", 3)
    assert spec.wire_name == "shop_find"
    assert dataclasses.replace(spec, alias=None).wire_name == "shop.find"
