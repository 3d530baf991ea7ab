"""What a scripted endpoint can answer: a function from the request to the steps of the answer."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from tests.scripted.history import Body
from tests.scripted.http import Delay, End, Hold, Step, chunk, response

USAGE: Body = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
_SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)

Item = Body | bytes | Hold | Delay | End
"""One piece of a stream: a chunk object, bytes as they are, or a point where it stops."""


class Answer:
    """One answer; `steps(request)` says how it is given to that request."""

    def __init__(self, steps: Callable[[Body], Iterable[Step]]) -> None:
        self.steps = steps


def tc(call_id: str | None, name: str, arguments: Any = "{}") -> Body:
    """Return one entry of `tool_calls`; arguments that are no text stay as they are on the wire."""
    call: Body = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return call if call_id is None else {"id": call_id, **call}


def args(**values: Any) -> str:
    """Return arguments as the JSON text which endpoints write."""
    return json.dumps(values)


def text(
    content: str,
    *,
    pieces: int = 3,
    finish: str | None = "stop",
    usage: Body | None = USAGE,
    reasoning: str | None = None,
    as_json: bool = False,
) -> Answer:
    """Answer with text, streamed in pieces when the request wants a stream."""
    message: Body = {"role": "assistant", "content": content}
    size = max(1, -(-len(content) // pieces))
    deltas: list[Item] = [
        {"content": content[at : at + size]} for at in range(0, len(content), size)
    ]
    if reasoning is not None:
        message["reasoning_content"] = reasoning
        deltas.insert(0, {"reasoning_content": reasoning})
    return _Either(message, deltas, finish, usage, as_json=as_json)


def calls(
    *tool_calls: Body,
    content: str | None = None,
    finish: str | None = "tool_calls",
    usage: Body | None = USAGE,
    reasoning: str | None = None,
    as_json: bool = False,
) -> Answer:
    """Answer with tool calls, streamed with an index each when the request wants a stream."""
    message: Body = {"role": "assistant", "content": content, "tool_calls": list(tool_calls)}
    deltas: list[Item] = [{"tool_calls": [{"index": i, **c}]} for i, c in enumerate(tool_calls)]
    if content is not None:
        deltas.insert(0, {"content": content})
    if reasoning is not None:
        message["reasoning_content"] = reasoning
        deltas.insert(0, {"reasoning_content": reasoning})
    return _Either(message, deltas, finish, usage, as_json=as_json)


def call(name: str, /, *, call_id: str = "call_1", **arguments: Any) -> Answer:
    """Answer with one ordinary tool call."""
    return calls(tc(call_id, name, json.dumps(arguments)))


def stream(
    *items: Item,
    finish: str | None = "stop",
    usage: Body | None = None,
    done: bool = True,
    per_byte: bool = False,
) -> Answer:
    """Answer with a stream of these deltas (or bytes, holds, delays, ends), then its usual end."""

    def steps(_request: Body) -> Iterator[Step]:
        yield _SSE_HEAD
        for item in (*items, *_ending(finish, usage, done=done)):
            if not isinstance(item, dict | bytes):
                yield item
                continue
            data = item if isinstance(item, bytes) else _event(_chunk(item))
            if not per_byte:
                yield chunk(data)
                continue
            for at in range(len(data)):
                yield chunk(data[at : at + 1])
                yield Delay()
        yield chunk(b"")

    return Answer(steps)


def tool_deltas(*entries: Body, finish: str | None = "tool_calls") -> Answer:
    """Answer with a stream of `tool_calls` entries, one a delta, exactly as they are given."""
    return stream(*({"tool_calls": [entry]} for entry in entries), finish=finish)


def status(code: int, body: Any, headers: dict[str, str] | None = None) -> Answer:
    """Answer with a status and a JSON body (or bytes as they are)."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(lambda _request: (response(code, data, headers=headers),))


def error(code: int, message: str, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    """Answer with a status and an error object as OpenAI writes it."""
    return status(code, {"error": {"message": message, **fields}}, headers)


def raw(*steps: Step) -> Answer:
    """Answer with bytes exactly as they are, and close the connection unless it ends otherwise."""
    return Answer(lambda _request: (*steps, End.CLOSE))


def hang() -> Answer:
    """Take the request and never answer."""
    return Answer(lambda _request: (End.HANG,))


def cut(*items: Item) -> Answer:
    """Answer with these deltas, then break the connection."""
    return stream(*items, Delay(), End.CUT, finish=None, done=False)


def held(hold: Hold, answer: Answer) -> Answer:
    """Give an answer only once the hold is released."""
    return Answer(lambda request: (hold, *answer.steps(request)))


def delayed(seconds: float, answer: Answer) -> Answer:
    """Give an answer after a time (for benchmarks; tests use holds)."""
    return Answer(lambda request: (Delay(seconds), *answer.steps(request)))


class _Either(Answer):
    """An answer that is a stream or JSON as the request asks; its bytes are made once."""

    def __init__(
        self,
        message: Body,
        deltas: Sequence[Item],
        finish: str | None,
        usage: Body | None,
        *,
        as_json: bool,
    ) -> None:
        super().__init__(self._steps)
        self._message, self._deltas = message, deltas
        self._finish, self._usage, self._as_json = finish, usage, as_json

    def _steps(self, request: Body) -> Iterable[Step]:
        if self._as_json or request.get("stream") is not True:
            return (self._json,)
        wants_usage = (request.get("stream_options") or {}).get("include_usage") is True
        return (self._with_usage if wants_usage else self._without_usage,)

    @cached_property
    def _json(self) -> bytes:
        choice = {"index": 0, "message": self._message, "finish_reason": self._finish}
        body: Body = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}
        return response(200, json.dumps({**body, "usage": self._usage}).encode())

    @cached_property
    def _with_usage(self) -> bytes:
        return self._stream(self._usage)

    @cached_property
    def _without_usage(self) -> bytes:
        return self._stream(None)

    def _stream(self, usage: Body | None) -> bytes:
        first: Body = {"role": "assistant", "content": ""}
        items = (first, *self._deltas, *_ending(self._finish, usage, done=True))
        events = [i if isinstance(i, bytes) else _event(_chunk(i)) for i in _written(items)]
        return _SSE_HEAD + b"".join(chunk(event) for event in events) + chunk(b"")


def _written(items: Iterable[Item]) -> Iterator[Body | bytes]:
    return (item for item in items if isinstance(item, dict | bytes))


def _ending(finish: str | None, usage: Body | None, *, done: bool) -> Iterator[Body | bytes]:
    if finish is not None:
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    if usage is not None:
        yield {"choices": [], "usage": usage}
    if done:
        yield b"data: [DONE]\n\n"


def _chunk(item: Body) -> Body:
    """Return a whole chunk: a bare delta is put into one."""
    whole = item.keys() & {"choices", "error"}
    body = item if whole else {"choices": [{"index": 0, "delta": item, "finish_reason": None}]}
    return {"id": "x", "object": "chat.completion.chunk", "model": "m", **body}


def _event(data: Body) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode(errors="surrogatepass") + b"\n\n"
