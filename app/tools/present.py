"""A result as it is kept and as the model reads it: both bounded, each saying what was left out."""

import json
from typing import Final

from app.core.canonical import Json, as_text
from app.runtime.ports.tools import ToolReply

MOST_KEPT: Final = 64 * 1024
"""Bytes of JSON text that a result may take in the journal."""

_CERTAINLY_FITS: Final = 10_000
_ROOM_FOR_NOTICE: Final = 200


def present(value: Json, max_chars: int, *, cut_off: bool = False) -> ToolReply:
    """Return the reply for a value; `cut_off` says that there was more than was received."""
    text = as_text(value)
    kept = value if _fits(value, text) else _kept(text, cut_off=cut_off)
    if len(text) <= max_chars and not cut_off:
        return ToolReply(kept, None)
    return ToolReply(kept, _shortened(text, max_chars, "shown", cut_off=cut_off))


def _fits(value: Json, text: str) -> bool:
    if len(text) > MOST_KEPT:
        return False
    return len(text) <= _CERTAINLY_FITS or _size(value) <= MOST_KEPT


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _kept(text: str, *, cut_off: bool) -> str:
    most = MOST_KEPT - _ROOM_FOR_NOTICE
    while _size(text[:most]) > MOST_KEPT - _ROOM_FOR_NOTICE:
        most = most * 3 // 4
    return _shortened(text, most, "kept", cut_off=cut_off)


def _shortened(text: str, most: int, verb: str, *, cut_off: bool) -> str:
    shown = min(most, len(text))
    total = f"more than {len(text):,}" if cut_off else f"{len(text):,}"
    return f"{text[:most]}… [truncated: {shown:,} of {total} characters {verb}]"
