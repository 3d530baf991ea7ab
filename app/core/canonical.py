"""Canonical form of JSON values, so that equal actions and equal results are seen as equal."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping

Json = object
"""A JSON value; whoever looks inside narrows it by `isinstance`."""


def canonical(value: Json) -> Json:
    """Return the value with sorted keys, 1.0 as 1, text in NFC, and spaces that mean nothing gone.

    These are the differences which LOOP-6 says do not matter.
    """
    if isinstance(value, dict):
        return {_text(str(key)): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _text(text: str) -> str:
    """Fold the spaces of a line; in several lines, such as code, indentation has a meaning."""
    lines = unicodedata.normalize("NFC", text).strip().splitlines()
    if len(lines) > 1:
        return "\n".join(line.rstrip() for line in lines)
    return " ".join("".join(lines).split())


def digest(value: Json) -> str:
    """Return a short stable hash of a value's canonical form."""
    form = json.dumps(canonical(value), ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(form.encode()).hexdigest()[:32]


def action_digest(tool: str, arguments: Mapping[str, Json], ignore: Iterable[str] = ()) -> str:
    """Return the hash of an action: tool name and arguments less those which do not count."""
    dropped = set(ignore)
    kept: dict[str, Json] = {k: v for k, v in arguments.items() if k not in dropped}
    return digest({"tool": tool, "arguments": kept})


def as_text(output: Json) -> str:
    """Return a tool's output as the text which the model reads: text itself, all else as JSON."""
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False, separators=(",", ":"))
