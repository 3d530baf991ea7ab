"""The built-in demo model: a few fixed rules, so that a first run needs no endpoint and no key.

Arithmetic in the task calls `calculate`; a tool's name with `k=v` pairs calls that tool; anything
else is echoed. Every answer says that it comes from the demo.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from app.core.canonical import Json
from app.core.events import ModelRef
from app.core.messages import Message, ToolMessage, UserMessage
from app.core.toolbox import ToolSpec
from app.providers.sums import expression_in
from app.providers.wire import used_ids
from app.runtime.ports.models import ModelReply, ModelRequest, RawCall

DEMO: Final = ModelRef("demo", price_input=0.0, price_cached=0.0, price_output=0.0)
LABEL: Final = "[demo model]"
_PAIR: Final = re.compile(r"([A-Za-z_]\w*)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,;]+)")
_CALCULATE: Final = "calculate"


class DemoModel:
    """Answers like an endpoint, deterministically and without one; usage is left to estimate."""

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Return the answer that the rules give."""
        task, results = _latest(request.messages)
        call = None if results else _call_for(task, request.tools)
        if call is not None:
            number = len(used_ids(request.messages)) + 1
            raw = RawCall(f"demo_{number}", call[0], json.dumps(call[1], ensure_ascii=False))
            return _reply("", (raw,))
        text = f"{LABEL} {_about(results) if results else f'You said: {task}'}"
        if on_delta is not None:
            for piece in re.findall(r"\S+\s*", text):
                on_delta(piece)
                await asyncio.sleep(0)
        return _reply(text, ())


def _reply(text: str, calls: tuple[RawCall, ...]) -> ModelReply:
    return ModelReply(
        text=text,
        reasoning=None,
        calls=calls,
        usage=None,
        finish_reason="tool_calls" if calls else "stop",
        model=DEMO.name,
        ttft_ms=0.0,
    )


def _latest(messages: Sequence[Message]) -> tuple[str, list[ToolMessage]]:
    """Return what the user said last, and the results that came since."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and not message.note:
            return message.text.strip(), results[::-1]
        if isinstance(message, ToolMessage):
            results.append(message)
    return "", results[::-1]


def _call_for(task: str, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, Json]] | None:
    """Return the wire name and arguments of the call that a task asks for."""
    for spec in sorted(tools, key=lambda tool: -len(tool.name)):
        if re.search(rf"(?<![\w-]){re.escape(spec.name)}(?![\w-])", task):
            pairs = _PAIR.findall(task)
            if pairs:
                return spec.wire_name, {name: _value(spec, name, text) for name, text in pairs}
    expression = expression_in(task)
    calculate = next((spec for spec in tools if spec.name == _CALCULATE), None)
    if expression is None or calculate is None:
        return None
    return calculate.wire_name, {"expression": expression}


def _value(spec: ToolSpec, name: str, text: str) -> Json:
    """Return a value as the tool's parameters want it: text where they say so, else as JSON."""
    if text[0] in "\"'":
        return text[1:-1]
    properties = spec.parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value


def _about(results: Sequence[ToolMessage]) -> str:
    return " ".join(f"{result.name} answered: {_said(result.content)}" for result in results)


def _said(content: str) -> str:
    """Return a result to show: `result` of an object that has one, else the content as it is."""
    try:
        value: Json = json.loads(content)
    except ValueError:
        return content
    return str(value["result"]) if isinstance(value, dict) and "result" in value else content
