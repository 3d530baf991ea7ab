"""Folded states and requests as JSON that people can read: what the API shows of the inside.

Field names are those of the core; times are RFC 3339 and durations seconds instead of microseconds.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Final, assert_never

from app.core.canonical import Json
from app.core.context import assemble, request_hash
from app.core.events import ModelRequested
from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.core.plan import owed
from app.core.state import State
from app.runtime.times import rfc3339
from app.runtime.views import facts_of

_MOMENTS: Final = frozenset({"at", "since", "active_from", "not_before"})
_ROLES: Final[dict[type, str]] = {
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}


def state_json(state: State) -> dict[str, object]:
    """Return a folded state."""
    shown = plain(state)
    if not isinstance(shown, dict):  # a state is no other thing
        raise TypeError(type(shown).__name__)
    effects = [effect.key for effect in owed(state)]
    return {"object": "state", "status": facts_of(state).status, **shown, "owed": effects}


def plain(value: object) -> Json:
    """Return a value of the core as JSON; what is JSON already is left as it is."""
    if isinstance(value, Enum):
        return str(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        role = _ROLES.get(type(value))
        shown: dict[str, Json] = {} if role is None else {"role": role}
        for field in fields(value):
            name, given = _named(field.name, getattr(value, field.name))
            shown[name] = given
        return shown
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def _named(name: str, value: object) -> tuple[str, Json]:
    bare = name.removesuffix("_us")
    if bare == name or not (value is None or isinstance(value, int)):
        return name, plain(value)
    if bare in _MOMENTS or bare.endswith("_at"):
        return bare, rfc3339(value) if value else None
    return f"{bare}_s", None if value is None else value / 1_000_000


def request_json(
    seq: int, body: ModelRequested, state: State, system: str | None
) -> dict[str, object]:
    """Return what was sent to the model at this event, as far as it is the same for every vendor.

    `intact` says that the messages made from the journal today are those that were sent then.
    """
    messages = assemble(state, body.purpose)
    first = [] if system is None else [{"role": "system", "content": system}]
    return {
        "object": "request",
        "seq": seq,
        "turn": state.turn,
        "step": state.step,
        "model": body.model,
        "purpose": body.purpose.value,
        "prompt": plain(body.prompt),
        "messages": [*first, *_messages(messages)],
        "tools": list(body.tools),
        "input_tokens": body.input_tokens,
        "sha256": body.sha256,
        "intact": request_hash(messages) == body.sha256,
    }


def _messages(messages: Sequence[Message]) -> list[dict[str, object]]:
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, object]:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case AssistantMessage():
            said: dict[str, object] = {"role": "assistant", "content": message.text}
            if message.calls:
                said["tool_calls"] = [
                    {
                        "id": call.wire_id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    }
                    for call in message.calls
                ]
            return said
        case ToolMessage():
            wire_id, content = message.wire_id, message.content
            return {"role": "tool", "tool_call_id": wire_id, "content": content}
        case _:
            assert_never(message)
