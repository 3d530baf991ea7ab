"""What a strict provider refuses: the reason why a request is not in order, or None."""

import re
from typing import Any

# Tests look deep into JSON that they wrote themselves.
Body = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}


class Invalid(Exception):  # noqa: N818 - it is the verdict, not an error of the program
    """The request is not in order."""


def check(body: Body, loads: Any) -> None:
    """Raise `Invalid` with what a strict provider would say; `loads` reads JSON text."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Invalid("model is missing")
    if "stream_options" in body and body.get("stream") is not True:
        raise Invalid("stream_options without stream")
    _check_tools(body.get("tools"))
    _check_messages(body.get("messages"), loads)


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not tools:
        raise Invalid("tools is an empty list or none at all")
    names = [_tool_name(tool) for tool in tools]
    if len(set(names)) != len(names):
        raise Invalid("a tool name twice")


def _tool_name(tool: Any) -> str:
    function = tool["function"]
    if tool.get("type") != "function" or not NAME.fullmatch(function["name"]):
        raise Invalid(f"tool {function['name']!r} is no function or has no legal name")
    if not isinstance(function.get("parameters"), dict):
        raise Invalid(f"tool {function['name']!r} has no parameters")
    return str(function["name"])


def _check_messages(messages: Any, loads: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise Invalid("messages is empty")
    open_ids: set[str] = set()
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role = _role(message, at)
        if role == "tool":
            _close(message, open_ids, at)
            continue
        if open_ids:
            raise Invalid(f"messages[{at}]: calls without results: {sorted(open_ids)}")
        if role == "assistant":
            open_ids = _check_assistant(message, at, seen, loads)
            seen |= open_ids
        elif not isinstance(message.get("content"), str):
            raise Invalid(f"messages[{at}]: content is no text")
    if open_ids or messages[-1]["role"] not in {"user", "tool"}:
        raise Invalid("the last message leaves nothing to answer")


def _role(message: Body, at: int) -> str:
    role = message.get("role")
    if role not in _KEYS or not set(message) <= _KEYS[role]:
        raise Invalid(f"messages[{at}]: role {role!r} with keys {sorted(message)}")
    if role == "system" and at:
        raise Invalid(f"messages[{at}]: system is not the first")
    return str(role)


def _close(message: Body, open_ids: set[str], at: int) -> None:
    call_id = message.get("tool_call_id")
    if call_id not in open_ids:
        raise Invalid(f"messages[{at}]: a result without its call: {call_id!r}")
    if not isinstance(message.get("content"), str):
        raise Invalid(f"messages[{at}]: content is no text")
    open_ids.remove(call_id)


def _check_assistant(message: Body, at: int, seen: set[str], loads: Any) -> set[str]:
    calls = message.get("tool_calls")
    content = message.get("content")
    if calls is None and not content:
        raise Invalid(f"messages[{at}]: an empty assistant message")
    if calls is not None and (not isinstance(calls, list) or not calls):
        raise Invalid(f"messages[{at}]: tool_calls is empty")
    ids = [_check_call(call, at, loads) for call in calls or ()]
    if len(set(ids)) != len(ids) or seen.intersection(ids):
        raise Invalid(f"messages[{at}]: a call id twice")
    return set(ids)


def _check_call(call: Body, at: int, loads: Any) -> str:
    function = call.get("function") or {}
    if call.get("type") != "function" or not NAME.fullmatch(function.get("name", "")):
        raise Invalid(f"messages[{at}]: a call that is no function call")
    if not isinstance(call.get("id"), str) or not call["id"]:
        raise Invalid(f"messages[{at}]: a call without id")
    try:
        arguments = loads(function.get("arguments"))
    except (TypeError, ValueError):
        raise Invalid(f"messages[{at}]: arguments are no JSON text") from None
    if not isinstance(arguments, dict):
        raise Invalid(f"messages[{at}]: arguments are no object")
    return str(call["id"])
