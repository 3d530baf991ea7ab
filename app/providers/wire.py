"""Requests as OpenAI's chat completions take them.

`messages` stand last, so that one request is the beginning of the next and a provider's cache of
prefixes finds it.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from app.core.canonical import Json
from app.core.messages import AssistantMessage, Message, MessageCall, ToolMessage, UserMessage
from app.core.toolbox import FINISH, ToolSpec
from app.providers.config import ModelConfig, Profile
from app.providers.text import clean_json
from app.runtime.ports.models import ModelRequest

SchemaOf = Callable[[ToolSpec], Mapping[str, Json]]

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64
_KEPT: Final = 256
_FINISH_TOOL: Final[Json] = {
    "type": "function",
    "function": {
        "name": FINISH,
        "description": (
            "Give the final answer and say how it stands. Call it alone, once nothing more is to "
            "be done or a tool cannot supply what is missing."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The answer for the user."},
                "complete": {
                    "type": "boolean",
                    "description": "Whether everything that was asked for is done.",
                },
                "confidence": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 1,
                    "description": "How sure you are that the answer is right.",
                },
                "missing": {
                    "type": "string",
                    "description": "What is missing, where it is not complete.",
                },
            },
            "required": ["text", "complete", "confidence"],
        },
    },
}

_encode = msgspec.json.Encoder().encode


class ToolWriter:
    """Writes the definitions of tools, and keeps those of the sets in use.

    A set is known by its very objects, which are kept as long as what was written of them.
    """

    def __init__(self, schema_of: SchemaOf) -> None:
        self._schema_of = schema_of
        self._kept: OrderedDict[
            tuple[int | bool, ...], tuple[Sequence[ToolSpec], msgspec.Raw | None]
        ] = OrderedDict()

    def written(self, tools: Sequence[ToolSpec], *, offer_finish: bool) -> msgspec.Raw | None:
        """Return the definitions as JSON; None when nothing is offered."""
        key = (offer_finish, *map(id, tools))
        found = self._kept.get(key)
        if found is None:
            definitions = [self._definition(spec) for spec in tools]
            if offer_finish:
                definitions.append(_FINISH_TOOL)
            raw = msgspec.Raw(encoded(definitions)) if definitions else None
            found = self._kept[key] = (tools, raw)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found[1]

    def _definition(self, spec: ToolSpec) -> Json:
        function = {
            "name": spec.wire_name,
            "description": spec.description,
            "parameters": self._schema_of(spec),
        }
        return {"type": "function", "function": function}


def request_body(
    request: ModelRequest, config: ModelConfig, writer: ToolWriter, without: Collection[str]
) -> bytes:
    """Return the body of a request, less the fields which this endpoint does not take."""
    body: dict[str, object] = {
        "model": config.name,
        "stream": True,
        "stream_options": {"include_usage": True},
        **config.parameters,
    }
    for field in without:
        body.pop(field, None)
    tools = writer.written(request.tools, offer_finish=request.offer_finish)
    if tools is not None:
        body["tools"] = tools
    body["messages"] = _messages(request, config.profile)
    return encoded(body)


def encoded(value: Json) -> bytes:
    """Return JSON in valid UTF-8, with lone surrogates replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(clean_json(value))


def used_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids that calls of this history have."""
    return {
        call.wire_id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }


def _messages(request: ModelRequest, profile: Profile) -> list[Json]:
    names = {spec.name: spec.wire_name for spec in request.tools if spec.alias}
    written: list[Json] = []
    if request.system:
        written.append({"role": "system", "content": request.system})
    for message in request.messages:
        match message:
            case UserMessage():
                written.append({"role": "user", "content": message.text})
            case ToolMessage():
                written.append(
                    {"role": "tool", "tool_call_id": message.wire_id, "content": message.content}
                )
            case AssistantMessage():
                written.append(_assistant(message, names, profile))
    return written


def _assistant(message: AssistantMessage, names: Mapping[str, str], profile: Profile) -> Json:
    content = message.text or (None if message.calls and profile.content_null else "")
    written: dict[str, Json] = {"role": "assistant", "content": content}
    if message.calls:
        if profile.replay_reasoning and message.reasoning is not None:
            written["reasoning_content"] = message.reasoning
        written["tool_calls"] = [_call(call, names) for call in message.calls]
    return written


def _call(call: MessageCall, names: Mapping[str, str]) -> Json:
    name = names.get(call.name) or _NOT_IN_NAMES.sub("_", call.name)[:_LONGEST_NAME] or "unknown"
    function = {"name": name, "arguments": call.arguments or "{}"}
    return {"type": "function", "id": call.wire_id, "function": function}
