"""A language model that answers by a script, which decides by the request alone."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.core.context import request_hash
from app.core.events import ModelRef, Usage
from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply, ModelRequest, RawCall

MODEL = ModelRef("scripted", price_input=1.0, price_output=2.0)
USAGE = Usage(input_tokens=100, output_tokens=10)


def says(text: str) -> ModelReply:
    """Return an answer in plain text."""
    return ModelReply(text, None, (), USAGE, "stop", MODEL.name, 1.0)


def calls(*wanted: tuple[str, dict[str, object]]) -> ModelReply:
    """Return an answer which calls tools."""
    raw = tuple(RawCall("", name, json.dumps(arguments)) for name, arguments in wanted)
    return ModelReply("", None, raw, USAGE, "tool_calls", MODEL.name, 1.0)


def results(messages: Sequence[Message]) -> list[ToolMessage]:
    """Return the results since the user last spoke."""
    found: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and not message.note:
            break
        if isinstance(message, ToolMessage):
            found.append(message)
    return found[::-1]


def task_of(messages: Sequence[Message]) -> str:
    """Return what the user said last."""
    said = [m.text for m in messages if isinstance(m, UserMessage)]
    return said[-1] if said else ""


Script = Callable[[ModelRequest], ModelReply | ModelFailure]


def echo(request: ModelRequest) -> ModelReply:
    """Answer with the task itself."""
    return says(f"You said: {task_of(request.messages)}")


@dataclass
class ScriptedModel:
    """A `ModelPort`. `takes_s` is how long an answer takes; its text comes in `pieces` deltas."""

    script: Script = echo
    takes_s: float = 0.2
    pieces: int = 0
    asked: list[str] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    cut: int = 0

    def get(self, name: str | None) -> ModelRef | None:
        return MODEL if name in {None, MODEL.name} else None

    def names(self) -> list[ModelRef]:
        return [MODEL]

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        assert _pairs(request.messages)
        self.asked.append(request_hash(request.messages))
        self.requests.append(request)
        reply = self.script(request)
        try:
            await self._stream(reply, on_delta)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        if isinstance(reply, ModelFailure):
            raise reply
        return reply

    async def _stream(
        self, reply: ModelReply | ModelFailure, on_delta: Callable[[str], None] | None
    ) -> None:
        if not self.pieces or isinstance(reply, ModelFailure) or on_delta is None:
            await asyncio.sleep(self.takes_s)
            return
        size = max(1, -(-len(reply.text) // self.pieces))
        for start in range(0, len(reply.text), size):
            await asyncio.sleep(self.takes_s / self.pieces)
            on_delta(reply.text[start : start + size])


def _pairs(messages: Sequence[Message]) -> bool:
    """Return whether every call has its results right behind it, as providers insist."""
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            open_ids.remove(message.wire_id)
        elif open_ids:
            return False
        elif isinstance(message, AssistantMessage):
            open_ids = [call.wire_id for call in message.calls]
    return not open_ids
