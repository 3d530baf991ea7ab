"""Answers of a real endpoint, in the many ways in which endpoints write them."""

import pytest

from app.core.events import Usage
from app.core.faults import FaultKind
from app.providers import reading
from app.providers.config import Profile
from tests.providers.support import arguments_of, ask, refusal, request
from tests.scripted.answers import calls, raw, status, stream, tc, text, tool_deltas
from tests.scripted.http import Delay, Hold, response

HI = '{"text":"hi"}'


async def test_text_comes_in_deltas_and_as_a_whole() -> None:
    pieces: list[str] = []
    reply = await ask(text("one two three"), on_delta=pieces.append)
    assert (reply.text, "".join(pieces), len(pieces)) == ("one two three", "one two three", 3)
    assert (reply.finish_reason, reply.calls, reply.reasoning) == ("stop", (), None)
    assert reply.model == "m"
    assert reply.ttft_ms is not None


@pytest.mark.req("OPS-6")
@pytest.mark.parametrize("as_json", [True, False])
async def test_an_answer_is_read_by_its_content_type(*, as_json: bool) -> None:
    reply = await ask(text("plain", as_json=as_json))
    assert (reply.text, reply.usage) == ("plain", Usage(100, 10, 0, 1))


async def test_events_of_a_wrong_content_type_are_read_too() -> None:
    body = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    assert (await ask(raw(response(200, body, content_type="text/plain")))).text == "x"


@pytest.mark.case("C001")
@pytest.mark.parametrize("as_json", [True, False])
async def test_empty_arguments_stay_empty(*, as_json: bool) -> None:
    reply = await ask(calls(tc("c1", "now", ""), as_json=as_json))
    assert arguments_of(reply) == [("now", "")]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.case("C002")
async def test_null_arguments_in_the_first_delta() -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "echo", "arguments": None}}
    rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"text":', '"hi"}')]
    assert arguments_of(await ask(tool_deltas(first, *rest))) == [("echo", HI)]


@pytest.mark.case("C003")
async def test_an_object_without_id_and_type() -> None:
    answer = calls({"function": {"name": "echo", "arguments": {"text": "hi"}}}, as_json=True)
    (call,) = (await ask(answer)).calls
    assert (call.wire_id, call.arguments) == ("call_1", '{"text": "hi"}')


@pytest.mark.case("C005")
async def test_a_call_cut_off_by_the_limit_says_so() -> None:
    reply = await ask(calls(tc("c1", "pay", '{"amount": 100}'), finish="length"))
    assert (reply.finish_reason, len(reply.calls)) == ("length", 1)


@pytest.mark.case("C012")
async def test_calls_count_whatever_the_reason_says() -> None:
    three = [tc(f"c{i}", "echo", HI) for i in range(3)]
    reply = await ask(calls(*three, content="let me look", finish="stop"))
    assert (len(reply.calls), reply.finish_reason, reply.text) == (3, "tool_calls", "let me look")


@pytest.mark.case("C013")
async def test_the_reason_counts_for_nothing_without_calls() -> None:
    answer = calls(finish="tool_calls", as_json=True)
    reply = await ask(answer)
    assert (reply.text, reply.calls, reply.finish_reason) == ("", (), "stop")


@pytest.mark.case("C015")
@pytest.mark.parametrize(
    "body", [{"choices": None}, {"choices": []}, {"choices": [{}]}, {"choices": [None]}, [], None]
)
async def test_a_body_without_a_message_is_a_fault(body: object) -> None:
    assert (await refusal(status(200, body))).fault.kind is FaultKind.UNAVAILABLE


@pytest.mark.case("C015")
async def test_an_error_in_the_stream_is_a_fault() -> None:
    busy = {"error": {"message": "upstream busy", "code": 503}}
    failure = await refusal(stream({"content": "a"}, busy, finish=None, done=False))
    assert "upstream busy" in failure.fault.message
    assert failure.fault.kind is FaultKind.UNAVAILABLE


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"", b"{", b"data: {\n\n"])
async def test_what_is_no_answer_at_all_is_a_fault(body: bytes) -> None:
    failure = await refusal(raw(response(200, body, content_type="text/html")))
    assert failure.fault.kind is FaultKind.UNAVAILABLE


@pytest.mark.case("C017")
async def test_usage_in_a_chunk_without_choices() -> None:
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 32},
    }
    reply = await ask(stream({"content": "ok"}, usage=usage))
    assert (reply.text, reply.usage) == ("ok", Usage(50, 7, 32, 1))


@pytest.mark.case("C019")
@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0}, {}])
async def test_no_usage_is_none_and_not_zero(usage: dict[str, int] | None) -> None:
    assert (await ask(stream({"content": "ok"}, usage=usage))).usage is None


@pytest.mark.parametrize("prompt", ["5", -1, None, True, 1e300])
async def test_usage_that_is_no_count_does_not_break_the_answer(prompt: object) -> None:
    reply = await ask(stream({"content": "ok"}, usage={"prompt_tokens": prompt}))
    assert reply.text == "ok"


@pytest.mark.case("C020")
async def test_comments_and_empty_data_in_between() -> None:
    noise: tuple[bytes, ...] = (b": PROCESSING\n\n", b"data: \n\n", b": ping\n\n")
    reply = await ask(stream(*noise, {"content": "a"}, *noise, {"content": "b"}, *noise))
    assert reply.text == "ab"


@pytest.mark.case("C022")
async def test_characters_split_over_writes() -> None:
    pieces: list[str] = []
    words = "naïve 世界 🎉"
    reply = await ask(stream({"content": words}, per_byte=True), on_delta=pieces.append)
    assert (reply.text, "".join(pieces)) == (words, words)


@pytest.mark.case("C024")
async def test_thinking_is_neither_answer_nor_delta() -> None:
    pieces: list[str] = []
    parts = [{"content": part} for part in ("<thi", "nk>secret plan</th", "ink>Hello")]
    reply = await ask(stream(*parts), on_delta=pieces.append)
    assert (reply.text, reply.reasoning, pieces) == ("Hello", "secret plan", ["Hello"])
    unclosed = await ask(stream({"content": "<think>never closed"}))
    assert (unclosed.text, unclosed.reasoning) == ("", "never closed")


@pytest.mark.case("C025")
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_beside_the_text(field: str) -> None:
    reply = await ask(stream({field: "ab"}, {field: "c"}, {"content": "Hello"}))
    assert (reply.text, reply.reasoning) == ("Hello", "abc")


async def test_content_in_typed_parts_and_a_refusal_as_text() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "Hello"}, "odd"]
    reply = await ask(stream({"content": parts}))
    assert (reply.text, reply.reasoning) == ("Hello", "hm")
    assert (await ask(stream({"content": None, "refusal": "No."}))).text == "No."


@pytest.mark.case("C034")
async def test_fenced_arguments_pass_unchanged() -> None:
    fenced = '```json\n{"text":"hi"}\n```'
    assert arguments_of(await ask(calls(tc("c1", "echo", fenced)))) == [("echo", fenced)]


@pytest.mark.case("C036")
@pytest.mark.parametrize(
    ("content", "left"),
    [
        ('<tool_call>{"name":"pay","arguments":{"amount":5}}</tool_call>', ""),
        ('Paying.\n<tool_call>\n{"name":"pay","arguments":{"amount":5}}', "Paying."),
        ('```json\n{"name": "pay", "parameters": {"amount":5}}\n```', ""),
    ],
)
async def test_calls_in_text_are_read_only_where_the_profile_says_so(
    content: str, left: str
) -> None:
    plain = await ask(text(content))
    assert (plain.calls, plain.text) == ((), content)
    read = await ask(text(content), profile=Profile(text_calls=True))
    assert arguments_of(read) == [("pay", '{"amount": 5}')]
    assert (read.text, read.finish_reason) == (left, "tool_calls")


@pytest.mark.case("C036")
@pytest.mark.parametrize(
    "content",
    [
        '<tool_call>{"name":"steal","arguments":{}}</tool_call>',
        "<tool_call>{not json}</tool_call>",
        '```json\n{"name": "a file"}\n```',
    ],
)
async def test_text_that_only_looks_like_a_call_stays_text(content: str) -> None:
    reply = await ask(text(content), profile=Profile(text_calls=True))
    assert (reply.calls, reply.text) == ((), content)


@pytest.mark.case("C116", "C118")
async def test_text_is_valid_unicode_without_nul() -> None:
    body = b'{"choices":[{"delta":{"content":"x\\ud83c|\\u0000|\\ud83c\\udf89"}}]}'
    pieces: list[str] = []
    reply = await ask(stream(b"data: " + body + b"\n\n"), on_delta=pieces.append)
    assert reply.text == "".join(pieces) == "x\ufffd|\ufffd|🎉"


@pytest.mark.case("C118")
async def test_a_pair_split_over_deltas_is_joined() -> None:
    halves = [
        b'data: {"choices":[{"delta":{"content":"' + half + b'"}}]}\n\n'
        for half in (b"a\\ud83c", b"\\udf89b")
    ]
    pieces: list[str] = []
    reply = await ask(stream(*halves), on_delta=pieces.append)
    assert reply.text == "".join(pieces) == "a🎉b"
    pieces.clear()
    lone = await ask(stream(halves[0]), on_delta=pieces.append)
    assert lone.text == "".join(pieces) == "a\ufffd"


@pytest.mark.parametrize(
    ("reason", "read"),
    [("max_tokens", "length"), ("eos", "stop"), ("content_filter", "content_filter")],
)
async def test_reasons_have_one_name_each(reason: str, read: str) -> None:
    assert (await ask(text("x", finish=reason))).finish_reason == read


async def test_finish_is_an_ordinary_call() -> None:
    arguments = '{"text":"done","complete":true,"confidence":0.9}'
    reply = await ask(calls(tc("c1", "finish", arguments)), asked=request(tools=()))
    assert arguments_of(reply) == [("finish", arguments)]


async def test_a_whole_answer_is_not_lost_for_what_should_follow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No usage, no end: after a moment the answer is taken as it is."""
    monkeypatch.setattr(reading, "_REST_S", 0.05)
    reply = await ask(stream({"content": "whole"}, finish="stop", done=False))
    assert reply.text == "whole"
    ended = {"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}
    reply = await ask(stream(ended, Hold(), finish=None, done=False))
    assert (reply.text, reply.usage) == ("whole", None)


async def test_an_answer_that_ends_in_an_error_is_none() -> None:
    failure = await refusal(text("half", finish="error"))
    assert failure.fault.kind is FaultKind.UNAVAILABLE
    assert failure.usage.output_tokens == 10


@pytest.mark.parametrize(
    "rubbish", [b"data: no json\n\n", b'data: {"error":"late"}\n\n', b"data: []\n\n"]
)
async def test_rubbish_after_a_whole_answer_does_not_lose_it(rubbish: bytes) -> None:
    ended = {"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    reply = await ask(stream(ended, rubbish, usage, finish=None))
    assert (reply.text, reply.usage) == ("whole", Usage(5, 2, 0, 1))


async def test_a_flood_after_a_whole_answer_is_not_taken() -> None:
    ended = {"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}
    flood = (item for _ in range(1000) for item in (b"x" * 65536, Delay()))
    reply = await ask(stream(ended, *flood, finish=None, done=False))
    assert reply.text == "whole"


@pytest.mark.case("C082")
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_a_text_beyond_all_measure_is_no_answer(field: str) -> None:
    pieces = [{field: "x" * 100_000} for _ in range(10)]
    assert len((await ask(stream(*pieces))).text) in {0, 1_000_000}
    failure = await refusal(stream(*pieces, {field: "x"}))
    assert "more than 1,000,000 characters" in str(failure)
