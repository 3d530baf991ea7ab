"""The bare agent loop, for the floors: ask, call the tool inline, ask again, until there is text.

No state machine, no guard, no ledger: what a first version in an afternoon would look like.
"""

import ast
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tests.bench.work import CALCULATE, MODEL_CALLS, SYSTEM

Json = dict[str, Any]
Ask = Callable[[bytes], AsyncIterator[bytes]]
OnStep = Callable[[str, Json], Awaitable[None]]
OnPiece = Callable[[str], Awaitable[None]]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass
class Reply:
    """A model's answer put together from its stream."""

    text: str = ""
    calls: dict[int, Json] = field(default_factory=dict)
    usage: Json = field(default_factory=dict)


async def nothing(_kind: str, _data: Json) -> None:
    """Keep nothing of a step."""


async def no_text(_piece: str) -> None:
    """Show nothing of the text."""


async def run(ask: Ask, task: str, *, on_step: OnStep = nothing, on_text: OnPiece = no_text) -> str:
    """Return the final answer; each step is given to `on_step` as soon as it is there."""
    messages: list[Json] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": task},
    ]
    for _ in range(MODEL_CALLS + 1):
        reply = await _answer(ask, messages, on_text)
        data: Json = {"text": reply.text, "calls": list(reply.calls.values()), "usage": reply.usage}
        if not reply.calls:
            await on_step("model.answered", data)
            return reply.text
        calls = [reply.calls[index] for index in sorted(reply.calls)]
        results = [_result(call) for call in calls]
        messages.append({"role": "assistant", "content": reply.text or None, "tool_calls": calls})
        messages.extend(results)
        await on_step("step.finished", {**data, "results": results})
    raise RuntimeError("the loop does not end")


async def _answer(ask: Ask, messages: list[Json], on_text: OnPiece) -> Reply:
    body = {
        "model": "scripted",
        "messages": messages,
        "tools": [CALCULATE],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    reply = Reply()
    async for line in ask(_encode(body)):
        if line.startswith(b"data: {"):
            piece = _take(reply, _decode(line[6:]))
            if piece:
                await on_text(piece)
    return reply


def _take(reply: Reply, chunk: Json) -> str:
    reply.usage = chunk.get("usage") or reply.usage
    piece = ""
    for choice in chunk["choices"]:
        delta = choice["delta"]
        piece += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            known = reply.calls.setdefault(call["index"], {"function": {"arguments": ""}})
            _merge(known, call)
    reply.text += piece
    return piece


def _merge(known: Json, part: Json) -> None:
    function = part.get("function") or {}
    known.update({k: part[k] for k in ("id", "type") if k in part})
    known["function"].setdefault("name", function.get("name"))
    known["function"]["arguments"] += function.get("arguments") or ""


def _result(call: Json) -> Json:
    arguments = _decode(call["function"]["arguments"])
    tree = ast.parse(arguments["expression"], mode="eval")
    content = _encode({"result": _value(tree.body)}).decode()
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left), _value(right))
        case _:
            raise ValueError(ast.dump(node))
