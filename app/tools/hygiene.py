"""Text and JSON from outside, made fit for storing: no NUL, no lone surrogate, no NaN.

What cannot be kept is replaced visibly (U+FFFD, or the number's own text), never dropped.
"""

import json
import re
from typing import Final

from app.core.canonical import Json

REPLACEMENT: Final = "\ufffd"
MOST_DEPTH: Final = 100
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NEEDS_CARE: Final = re.compile(r"\\u|NaN|Infinity|\d{19}|\d[eE]\+?\d{3}")
_INT_BOUND: Final = 2**63
_SLICE: Final = 1 << 16
_OVERLAP: Final = 32


class UnfitJsonError(ValueError):
    """The text is JSON that cannot be taken: too deep, or a number out of range."""


def clean_text(text: str) -> str:
    """Return the text without NUL and without halves of surrogate pairs."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    if text.isascii():
        return text
    pieces = (text[at : at + _SLICE] for at in range(0, len(text), _SLICE))
    return "".join(_SURROGATE.sub(REPLACEMENT, piece) for piece in pieces)


def _needs_care(text: str) -> bool:
    """Return whether a JSON text may hold what must be replaced.

    Slice by slice: one search through megabytes, though in a thread, would hold the interpreter.
    """
    return any(
        _NEEDS_CARE.search(text, at, at + _SLICE + _OVERLAP) for at in range(0, len(text), _SLICE)
    )


def clean(value: Json) -> Json:
    """Return the value with every text in it clean, keys too."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def too_deep(value: Json, most: int = MOST_DEPTH) -> bool:
    """Return whether values are nested deeper than this; it does not recurse."""
    layer: list[Json] = [value]
    for _ in range(most + 1):
        layer = [
            item
            for node in layer
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not layer:
            return False
    return True


def read_json(text: str, *, strict: bool) -> tuple[Json, bool]:
    """Return the value of a JSON text, clean, and whether cleaning changed it.

    `strict` refuses NaN, Infinity and numbers out of range; else they become their own text.

    Raises:
        ValueError: when it is not JSON (`JSONDecodeError`), or `UnfitJsonError`.

    """
    try:
        if not _needs_care(text):
            value, changed = json.loads(text), False
        else:
            value, changed = _read_with_care(text, strict=strict)
    except RecursionError:
        raise UnfitJsonError(f"it is nested deeper than {MOST_DEPTH} levels") from None
    if text.count("[") + text.count("{") > MOST_DEPTH and too_deep(value):
        raise UnfitJsonError(f"it is nested deeper than {MOST_DEPTH} levels")
    return value, changed


def _read_with_care(text: str, *, strict: bool) -> tuple[Json, bool]:
    def unusual(literal: str) -> Json:
        if strict:
            shown = literal if len(literal) <= 24 else f"{literal[:20]}…"  # noqa: PLR2004
            raise UnfitJsonError(f"the number {shown} is out of range")
        return literal

    def whole(literal: str) -> Json:
        if len(literal) > 20:  # noqa: PLR2004 - longer than any 64-bit number
            return unusual(literal)
        number = int(literal)
        return number if -_INT_BOUND <= number < _INT_BOUND else unusual(literal)

    def fraction(literal: str) -> Json:
        number = float(literal)
        return unusual(literal) if number in {float("inf"), float("-inf")} else number

    value = json.loads(text, parse_constant=unusual, parse_int=whole, parse_float=fraction)
    if too_deep(value):
        raise UnfitJsonError(f"it is nested deeper than {MOST_DEPTH} levels")
    cleaned = clean(value)
    return cleaned, cleaned != value
