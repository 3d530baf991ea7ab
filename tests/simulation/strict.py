"""What the strictest endpoints demand of a request, written from their rules and not from ours.

The first message is the user's; user and assistant alternate; every call of an assistant message is
answered, once, in the messages right behind it, in the order asked; ids occur once; arguments are
JSON objects; an assistant message is not empty and is never the last one.
"""

import json
from collections.abc import Sequence

from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.runtime.ports.models import ModelRequest


def refusal(request: ModelRequest) -> str | None:
    """Return why an endpoint would refuse this request, or None."""
    names = [spec.wire_name for spec in request.tools]
    if len(set(names)) != len(names):
        return "two tools of one name"
    if not request.system.strip():
        return "no system prompt"
    return _of_messages(request.messages)


def _of_messages(messages: Sequence[Message]) -> str | None:
    if not messages or not isinstance(messages[0], UserMessage):
        return "the first message is not the user's"
    if isinstance(messages[-1], AssistantMessage):
        return "the last message is the assistant's"
    seen: set[str] = set()
    unanswered: list[str] = []
    role = ""
    for message in messages:
        fault = _of_result(message, unanswered) if isinstance(message, ToolMessage) else None
        if isinstance(message, ToolMessage):
            role = "tool"
        elif unanswered:
            fault = f"calls without results: {unanswered}"
        elif isinstance(message, UserMessage):
            fault = _of_user(message, role)
            role = "user"
        else:
            fault = _of_assistant(message, role, seen)
            unanswered = [call.wire_id for call in message.calls]
            role = "assistant"
        if fault is not None:
            return fault
    return f"calls without results: {unanswered}" if unanswered else None


def _of_result(message: ToolMessage, unanswered: list[str]) -> str | None:
    if not unanswered:
        return f"a result without its call: {message.wire_id}"
    expected = unanswered.pop(0)
    if message.wire_id != expected:
        return f"a result of {message.wire_id} where that of {expected} belongs"
    return None if message.content else f"an empty result of {message.wire_id}"


def _of_user(message: UserMessage, role: str) -> str | None:
    if role == "user":
        return "two user messages running"
    return None if message.text.strip() else "an empty user message"


def _of_assistant(message: AssistantMessage, role: str, seen: set[str]) -> str | None:
    if role == "assistant":
        return "two assistant messages running"
    if not message.text.strip() and not message.calls:
        return "an empty assistant message"
    for call in message.calls:
        if not call.wire_id or call.wire_id in seen:
            return f"a call id used twice or empty: {call.wire_id!r}"
        seen.add(call.wire_id)
        try:
            if not isinstance(json.loads(call.arguments), dict):
                return f"arguments of {call.wire_id} are no object"
        except ValueError:
            return f"arguments of {call.wire_id} are no JSON"
    return None
