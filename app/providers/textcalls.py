"""Tool calls that a model wrote into its text, for endpoints whose profile says to read them."""

import re
from collections.abc import Collection
from typing import Final

import msgspec

from app.core.canonical import Json

_TAGGED: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", re.DOTALL)
_FENCED: Final = re.compile(r"\A\s*```(?:json|tool_call)?\s*(\{.*\})\s*```\s*\Z", re.DOTALL)


def read_text_calls(text: str, known: Collection[str]) -> tuple[str, list[dict[str, Json]]]:
    """Return the text without its calls, and the calls as entries of `tool_calls`.

    Read are `<tool_call>{…}</tool_call>` and an answer which is nothing but fenced JSON; either
    must name a tool that was offered.
    """
    entries: list[dict[str, Json]] = []

    def take(match: re.Match[str]) -> str:
        entry = _entry(match.group(1), known)
        if entry is None:
            return match.group(0)
        entries.append(entry)
        return ""

    pattern = _TAGGED if "<tool_call>" in text else _FENCED
    rest = pattern.sub(take, text)
    return (rest.strip(), entries) if entries else (text, [])


def _entry(written: str, known: Collection[str]) -> dict[str, Json] | None:
    try:
        call: Json = msgspec.json.decode(written)
    except ValueError:
        return None
    if not isinstance(call, dict) or call.get("name") not in known:
        return None
    arguments = call.get("arguments", call.get("parameters"))
    return {"function": {"name": call["name"], "arguments": arguments}}
