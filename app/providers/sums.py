"""Arithmetic in a task, for the demo model: written with operators, or told in words."""

import re
from typing import Final

_NUMBER: Final = r"\d+(?:\.\d+)?"
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")
_TIMES: Final = re.compile(r"(?<=\d)\s*x\s*(?=\d)", re.IGNORECASE)
# The signs for times, division and minus as they are printed, and the caret.
_SIGNS_IN_PRINT: Final = str.maketrans({"\xd7": "*", "\xf7": "/", "\u2212": "-", "^": "**"})
_WRITTEN: Final = re.compile(r"[\d(][\d\s.()+\-*/^]*[\d)]")
_OPERATION: Final = re.compile(r"\d\s*\)*\s*(?:\*\*|[+\-*/])\s*\(*\s*-?\d")
_PERCENT: Final = rf"(?P<{{0}}>{_NUMBER})\s*(?:%|percent)"
_WORDS: Final = re.compile(
    "|".join(
        (
            _PERCENT.format("share") + rf"\s+of\s+(?P<whole>{_NUMBER})",
            _PERCENT.format("off") + r"\s*(?:off|discount|less|rebate|cheaper)",
            r"(?:minus|less|off|discount of|reduced by)\s+" + _PERCENT.format("less"),
            r"(?:plus|add|and|with)\s+" + _PERCENT.format("more"),
            rf"(?:times|multiplied by)\s*(?P<times>{_NUMBER})",
            rf"(?:divided by|split (?:by|among|between)|over)\s*(?P<over>{_NUMBER})",
            rf"(?:minus|less|subtract|coupon of|voucher of|take away)\s*(?P<minus>{_NUMBER})",
            rf"(?P<taken>{_NUMBER})\s*(?:off\b|less\b)",
            rf"(?:plus|add)\s*(?P<plus>{_NUMBER})",
            rf"(?P<start>{_NUMBER})",
        )
    ),
    re.IGNORECASE,
)
_SIGNS: Final = {"times": "*", "over": "/", "minus": "-", "taken": "-", "plus": "+"}


def expression_in(text: str) -> str | None:
    """Return the expression that a text asks for, or None when it asks for none."""
    plain = _THOUSANDS.sub("", _DATE.sub(" ", text))
    plain = _TIMES.sub(" * ", plain).translate(_SIGNS_IN_PRINT)
    return _written(plain) or _told(plain)


def _written(text: str) -> str | None:
    """Return the longest stretch of numbers and operators with balanced brackets."""
    found = [" ".join(m.group(0).split()) for m in _WRITTEN.finditer(text)]
    fit = [e for e in found if _OPERATION.search(e) and e.count("(") == e.count(")")]
    return max(fit, key=len, default=None)


def _told(text: str) -> str | None:
    """Return `299 * 0.8 - 50` for "costs 299, 20 % off, then minus 50"."""
    expression, loose = "", False
    for match in _WORDS.finditer(text):
        kind, number = str(match.lastgroup), match.group(str(match.lastgroup))
        if kind == "whole":
            expression, loose = f"{number} * {_factor(match['share'], 0, 1)}", False
        elif kind == "start":
            expression = expression or number
        elif expression:
            sign, value = _step(kind, number)
            if sign in "*/" and loose:
                expression = f"({expression})"
            expression, loose = f"{expression} {sign} {value}", sign in "+-"
    return expression if " " in expression else None


def _step(kind: str, number: str) -> tuple[str, str]:
    match kind:
        case "off" | "less":
            return "*", _factor(number, 1, -1)
        case "more":
            return "*", _factor(number, 1, 1)
        case _:
            return _SIGNS[kind], number


def _factor(percent: str, base: int, sign: int) -> str:
    return f"{base + sign * float(percent) / 100:.10g}"
