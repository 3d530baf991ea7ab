"""The tokens of an arithmetic expression.

Full-width characters and the signs of multiplication, division and minus are understood. A comma
is a thousands separator between digit groups, and an argument separator inside a function's
parentheses. `%` with no operand after it is percent, else the remainder; where that cannot be
told, it is refused.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

MOST_CHARS: Final = 1000
_MOST_DIGITS: Final = 400
_MOST_EXPONENT: Final = 400
_SPACE: Final = re.compile(r"\s*")
_NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,9}))?", re.ASCII)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPERATOR: Final = re.compile(r"\*\*|//|[-+*/%(),]")
_SAME: Final = str.maketrans(
    {"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "^": "\0"}
)


class ExpressionError(ValueError):
    """An expression that cannot be read or computed; the message counts characters from 1."""

    def __init__(self, message: str, at: int) -> None:
        """Say what is wrong and where."""
        super().__init__(f"Position {at + 1}: {message}.")


@dataclass(frozen=True, slots=True)
class Token:
    """A number, name, operator, or the end."""

    kind: str
    text: str
    at: int


def tokens(expression: str) -> list[Token]:
    """Return the tokens of an expression, the last of kind `end`.

    Raises:
        ExpressionError: at what is no token.

    """
    if len(expression) > MOST_CHARS:
        raise ExpressionError(f"longer than {MOST_CHARS} characters", MOST_CHARS)
    text = unicodedata.normalize("NFKC", expression).translate(_SAME).replace("\0", "**")
    found: list[Token] = []
    calls: list[bool] = []
    at = _skip(text, 0)
    while at < len(text):
        token = _token(text, at, in_call=bool(calls) and calls[-1])
        if token.text == "(":
            calls.append(bool(found) and found[-1].kind == "name")
        elif token.text == ")" and calls:
            calls.pop()
        found.append(token)
        at = _skip(text, at + len(token.text))
    found.append(Token("end", "", len(text)))
    return [_percent(found, i) for i in range(len(found) - 1)] + [_plain(found[-1])]


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _token(text: str, at: int, *, in_call: bool) -> Token:
    grouped = None if in_call else _GROUPED.match(text, at)
    if grouped:
        return Token("number", grouped[0], at)
    number = _NUMBER.match(text, at)
    if number:
        if len(number[0]) > _MOST_DIGITS or abs(int(number[1] or 0)) > _MOST_EXPONENT:
            raise ExpressionError("the number is too long", at)
        return Token("number", number[0], at)
    for kind, pattern in (("name", _NAME), ("operator", _OPERATOR)):
        match = pattern.match(text, at)
        if match:
            return Token(kind, match[0], at)
    raise ExpressionError(f"unexpected {text[at]!r}", at)


def _percent(found: list[Token], index: int) -> Token:
    """Return the token; a `%` becomes `percent` where no operand follows it."""
    token, following = found[index], found[index + 1]
    if token.text != "%":
        return _plain(token)
    if following.kind in {"number", "name"} or following.text == "(":
        return token
    if following.text in {"+", "-"}:
        message = f"'%' before '{following.text}' can mean percent or remainder; use parentheses"
        raise ExpressionError(message, token.at)
    return Token("operator", "percent", token.at)


def _plain(token: Token) -> Token:
    return Token(token.kind, token.text.replace(",", ""), token.at) if _is_grouped(token) else token


def _is_grouped(token: Token) -> bool:
    return token.kind == "number" and "," in token.text
