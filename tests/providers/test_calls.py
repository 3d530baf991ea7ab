"""Tool calls in all the ways in which endpoints write them."""

import pytest

from app.core.canonical import Json
from app.providers.calls import MOST_CALLS, CallAssembler
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import RawCall
from tests.scripted.history import Body

KNOWN = {"echo", "now", "get", "get_weather"}
ONE, TWO = '{"text":"1"}', '{"text":"2"}'


def entry(
    name: Json = None, arguments: Json = None, *, index: Json = None, call_id: Json = None
) -> Body:
    function = {"name": name, "arguments": arguments}
    whole: Body = {"function": {k: v for k, v in function.items() if v is not None}}
    if index is not None:
        whole["index"] = index
    if call_id is not None:
        whole["id"] = call_id
    return whole


def streamed(*entries: Json, taken: tuple[str, ...] = ()) -> list[RawCall]:
    calls = CallAssembler(KNOWN)
    for each in entries:
        calls.add_delta(each)
    return list(calls.finished(taken))


def said(*entries: Json) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in streamed(*entries)]


@pytest.mark.case("C002")
def test_null_arguments_are_no_text() -> None:
    first: Body = {"index": 0, "id": "c1", "function": {"name": "echo", "arguments": None}}
    rest = [entry(arguments=part, index=0) for part in ('{"text":', '"hi"}')]
    assert streamed(first, *rest) == [RawCall("c1", "echo", '{"text":"hi"}')]


@pytest.mark.case("C007")
def test_without_index_an_id_begins_a_call() -> None:
    calls = streamed(
        entry("echo", '{"text":', call_id="a"),
        entry(arguments='"1"}'),
        entry("echo", TWO, call_id="b"),
    )
    assert calls == [RawCall("a", "echo", ONE), RawCall("b", "echo", TWO)]


@pytest.mark.case("C007")
def test_without_index_and_id_complete_arguments_end_a_call() -> None:
    assert said(entry("echo", ONE), entry("echo", TWO)) == [("echo", ONE), ("echo", TWO)]
    assert said(entry("echo", '{"a":'), entry("echo", "{}}")) == [("echo", '{"a":{}}')]


def test_without_index_and_id_another_known_name_begins_a_call() -> None:
    assert said(entry("now", ""), entry("echo", ONE)) == [("now", ""), ("echo", ONE)]


@pytest.mark.case("C010")
def test_a_repeated_name_is_one_name() -> None:
    parts = ('{"te', 'xt":', '"hi"}')
    assert said(*(entry("echo", part, index=0) for part in parts)) == [("echo", '{"text":"hi"}')]


def test_a_name_in_pieces_is_joined_and_a_known_name_wins() -> None:
    assert said(entry("get_", index=0), entry("weather", "{}", index=0)) == [("get_weather", "{}")]
    assert said(entry("get", index=0), entry("_weather", "{}", index=0)) == [("get_weather", "{}")]
    assert said(entry("echo", index=0), entry("junk", "{}", index=0)) == [("echo", "{}")]


@pytest.mark.case("C040")
def test_equal_index_with_differing_ids_is_two_calls() -> None:
    assert streamed(
        entry("echo", ONE, index=0, call_id="a"), entry("echo", TWO, index=0, call_id="b")
    ) == [RawCall("a", "echo", ONE), RawCall("b", "echo", TWO)]


@pytest.mark.case("C040")
def test_an_id_repeated_on_each_delta_is_one_call() -> None:
    parts = ('{"te', 'xt":"1"}', "")
    calls = streamed(*(entry("echo", part, index=0, call_id="a") for part in parts))
    assert calls == [RawCall("a", "echo", ONE)]


def test_interleaved_deltas_find_their_call() -> None:
    by_index = streamed(
        entry("echo", '{"text":', index=0, call_id="a"),
        entry("echo", '{"text":', index=1, call_id="b"),
        entry(arguments='"1"}', index=0),
        entry(arguments='"2"}', index=1),
    )
    by_id = streamed(
        entry("echo", '{"text":', index=0, call_id="a"),
        entry("echo", '{"text":', index=0, call_id="b"),
        entry(arguments='"1"}', index=0, call_id="a"),
        entry(arguments='"2"}', index=0, call_id="b"),
    )
    assert by_index == by_id == [RawCall("a", "echo", ONE), RawCall("b", "echo", TWO)]


@pytest.mark.case("C008")
@pytest.mark.parametrize("wire_id", ["", "call_1"])
def test_two_calls_always_have_two_ids(wire_id: str) -> None:
    calls = CallAssembler(KNOWN)
    calls.add_whole(entry("echo", ONE, call_id=wire_id))
    calls.add_whole(entry("echo", TWO, call_id=wire_id))
    first, second = calls.finished(())
    assert first.wire_id == (wire_id or "call_1")
    assert second.wire_id == "call_2"
    assert (first.arguments, second.arguments) == (ONE, TWO)


def test_an_id_of_the_history_is_not_used_again() -> None:
    delta = entry("echo", ONE, index=0, call_id="call_1")
    assert streamed(delta, taken=("call_1",)) == [RawCall("call_2", "echo", ONE)]
    assert streamed(delta, taken=("call_1", "call_3")) == [RawCall("call_4", "echo", ONE)]


@pytest.mark.case("C003")
def test_an_object_becomes_text() -> None:
    assert said(entry("echo", {"text": "世"})) == [("echo", '{"text": "世"}')]
    assert said(entry("echo", {"a": 1}), entry("echo", {"a": 2})) == [
        ("echo", '{"a": 1}'),
        ("echo", '{"a": 2}'),
    ]


def test_what_is_no_call_is_left_out() -> None:
    assert streamed("text", None, {"index": 0, "id": "a"}) == []
    assert said({"name": "echo", "arguments": ONE}) == [("echo", ONE)]


def test_an_answer_of_endless_calls_is_no_answer() -> None:
    entries = [entry("echo", ONE, index=index) for index in range(MOST_CALLS + 1)]
    assert len(streamed(*entries[:-1])) == MOST_CALLS
    with pytest.raises(ModelFailure, match="more than 128 tool calls"):
        streamed(*entries)


def test_pieces_that_each_look_like_a_beginning_are_read_in_linear_time() -> None:
    """8 MB of such pieces would hold the process for minutes if each read all before it."""
    pieces = [entry(arguments='{"a', index=0) for _ in range(20_000)]
    (call,) = streamed(entry("echo", '{"text":"', index=0, call_id="a"), *pieces)
    assert len(call.arguments) == 20_000 * 3 + 9


def test_a_complete_object_ends_a_call_whatever_empty_pieces_follow_it() -> None:
    calls = said(
        entry("echo", ONE), entry(arguments=""), entry(arguments=" \n"), entry("echo", TWO)
    )
    assert calls == [("echo", ONE + " \n"), ("echo", TWO)]
