"""Exact arithmetic: `299 * 0.8 - 50` is 189.2.

    expression := term (("+" | "-") term)*
    term       := unary (("*" | "/" | "//" | "%") unary)*
    unary      := ("+" | "-") unary | power
    power      := postfix ("**" unary)?
    postfix    := atom "%"*            (a percent sign that no operand follows)
    atom       := number | name "(" expression ("," expression)* ")" | "(" expression ")"

Values are fractions; only roots and fractional powers are rounded, to 34 digits, and said to be.
Every intermediate value is bounded, so that no expression costs more than a moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from fractions import Fraction
from math import isqrt
from typing import Final

from app.core.canonical import Json
from app.tools.calculate_tokens import ExpressionError, Token, tokens

MOST_BITS: Final = 8192
_MOST_NESTING: Final = 50
_PLACES: Final = 34
_SHOWN_PLACES: Final = 28
_SAFE_INTEGER: Final = 2**53
_CONTEXT: Final = Context(prec=_PLACES, rounding=ROUND_HALF_EVEN, Emax=9999, Emin=-9999)


@dataclass(frozen=True, slots=True)
class Number:
    """A value, and whether it is exact."""

    value: Fraction
    exact: bool = True


def calculate(expression: str) -> dict[str, Json]:
    """Return the result of an expression; `exact` is there, and false, when it was rounded.

    Raises:
        ExpressionError: when it cannot be read or computed, saying where.

    """
    number = _Parser(tokens(expression)).whole()
    value = number.value
    scale = _decimal_places(value.denominator)
    if number.exact and scale is not None:
        decimal = Decimal(int(value * 10**scale)).scaleb(-scale, Context(prec=MOST_BITS))
        return {"result": _shown(decimal)}
    rounding = Context(prec=_SHOWN_PLACES)
    rounded = rounding.divide(Decimal(value.numerator), Decimal(value.denominator))
    return {"result": _shown(rounding.normalize(rounded)), "exact": False}


def _shown(decimal: Decimal) -> Json:
    """Return a JSON number where one says it exactly, else decimal text."""
    if decimal == decimal.to_integral_value():
        whole = int(decimal)
        return whole if abs(whole) < _SAFE_INTEGER else str(whole)
    number = float(decimal)
    return number if Decimal(repr(number)) == decimal else format(decimal, "f")


def _decimal_places(denominator: int) -> int | None:
    """Return how many decimal places a fraction has, or None when they never end."""
    twos = (denominator & -denominator).bit_length() - 1
    rest, fives = denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


class _Parser:
    """A recursive descent over the tokens; each method is a line of the grammar above."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._next = 0
        self._depth = 0

    def whole(self) -> Number:
        """Return the value of all tokens."""
        number = self._expression()
        token = self._peek()
        if token.kind != "end":
            raise ExpressionError(f"unexpected {token.text!r}", token.at)
        return number

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, *texts: str) -> Token | None:
        token = self._peek()
        return self._take() if token.kind == "operator" and token.text in texts else None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            token = self._peek()
            raise ExpressionError(f"expected {text!r} before {token.text or 'the end'!r}", token.at)

    def _expression(self) -> Number:
        self._depth += 1
        if self._depth > _MOST_NESTING:
            raise ExpressionError(f"nested deeper than {_MOST_NESTING}", self._peek().at)
        left = self._term()
        while operator := self._accept("+", "-"):
            left = _apply(operator, left, self._term())
        self._depth -= 1
        return left

    def _term(self) -> Number:
        left = self._unary()
        while operator := self._accept("*", "/", "//", "%"):
            left = _apply(operator, left, self._unary())
        return left

    def _unary(self) -> Number:
        negative = False
        while operator := self._accept("+", "-"):
            negative ^= operator.text == "-"
        number = self._power()
        return Number(-number.value, number.exact) if negative else number

    def _power(self) -> Number:
        base = self._postfix()
        operator = self._accept("**")
        if operator is None:
            return base
        self._depth += 1
        if self._depth > _MOST_NESTING:
            raise ExpressionError(f"nested deeper than {_MOST_NESTING}", operator.at)
        number = _apply(operator, base, self._unary())
        self._depth -= 1
        return number

    def _postfix(self) -> Number:
        number = self._atom()
        while self._accept("percent"):
            number = Number(number.value / 100, number.exact)
        return number

    def _atom(self) -> Number:
        token = self._take()
        if token.kind == "number":
            return Number(Fraction(token.text))
        if token.kind == "name":
            return self._call(token)
        if token.kind == "operator" and token.text == "(":
            number = self._expression()
            self._expect(")")
            return number
        found = repr(token.text) if token.text else "the end"
        raise ExpressionError(f"expected a number before {found}", token.at)

    def _call(self, name: Token) -> Number:
        function = _FUNCTIONS.get(name.text)
        if function is None:
            known = ", ".join(sorted(_FUNCTIONS))
            raise ExpressionError(f"unknown name {name.text!r}; functions: {known}", name.at)
        self._expect("(")
        arguments = [self._expression()]
        while self._accept(","):
            arguments.append(self._expression())
        self._expect(")")
        try:
            return _bounded(function(arguments), name)
        except ValueError as error:
            raise ExpressionError(str(error), name.at) from None


def _apply(operator: Token, left: Number, right: Number) -> Number:
    exact = left.exact and right.exact
    a, b = left.value, right.value
    if operator.text in {"/", "//", "%"} and b == 0:
        raise ExpressionError("division by zero", operator.at)
    match operator.text:
        case "+":
            value = a + b
        case "-":
            value = a - b
        case "*":
            value = a * b
        case "/":
            value = a / b
        case "//":
            value = Fraction(a // b)
        case "%":
            value = a % b
        case _:
            return _bounded(_to_the(operator, left, right), operator)
    return _bounded(Number(value, exact), operator)


def _to_the(operator: Token, base: Number, exponent: Number) -> Number:
    a, b = base.value, exponent.value
    if a == 0 and b < 0:
        raise ExpressionError("division by zero", operator.at)
    if b.denominator == 1:
        size = max(a.numerator.bit_length(), a.denominator.bit_length())
        if size > 1 and (size - 1) * abs(b.numerator) > MOST_BITS:
            raise ExpressionError("the result is too large", operator.at)
        reduced = b.numerator if size > 1 else b.numerator % 2 + 2 * (b.numerator != 0)
        return Number(a**reduced, base.exact and exponent.exact)
    if a < 0:
        raise ExpressionError("a fractional power of a negative number", operator.at)
    try:
        power = _CONTEXT.power(_decimal(a), _decimal(b))
    except DecimalException:
        raise ExpressionError("the result is too large", operator.at) from None
    return Number(Fraction(power), exact=False)


def _bounded(number: Number, token: Token) -> Number:
    value = number.value
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise ExpressionError("the result is too large", token.at)
    return number


def _decimal(value: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _single(arguments: list[Number], name: str) -> Number:
    if len(arguments) != 1:
        raise ValueError(f"{name} takes one number")
    return arguments[0]


def _abs(arguments: list[Number]) -> Number:
    number = _single(arguments, "abs")
    return Number(abs(number.value), number.exact)


def _sqrt(arguments: list[Number]) -> Number:
    number = _single(arguments, "sqrt")
    if number.value < 0:
        raise ValueError("sqrt of a negative number")
    top, bottom = isqrt(number.value.numerator), isqrt(number.value.denominator)
    if Fraction(top * top, bottom * bottom) == number.value:
        return Number(Fraction(top, bottom), number.exact)
    try:
        return Number(Fraction(_CONTEXT.sqrt(_decimal(number.value))), exact=False)
    except DecimalException:
        raise ValueError("the result is too large") from None


def _round(arguments: list[Number]) -> Number:
    """Round to the given decimal places; a half goes away from zero, as in commerce."""
    if len(arguments) > 2:  # noqa: PLR2004 - round(number, places)
        raise ValueError("round takes a number and how many decimal places")
    number = arguments[0]
    places = arguments[1].value if len(arguments) > 1 else Fraction(0)
    if places.denominator != 1 or abs(places) > 1000:  # noqa: PLR2004 - more than anyone shows
        raise ValueError("round takes a whole number of decimal places, at most 1000")
    scale = Fraction(10) ** int(places)
    scaled = abs(number.value) * scale
    rounded = Fraction((2 * scaled + 1) // 2) / scale
    return Number(rounded if number.value >= 0 else -rounded, number.exact)


def _least(arguments: list[Number]) -> Number:
    return min(arguments, key=lambda number: number.value)


def _greatest(arguments: list[Number]) -> Number:
    return max(arguments, key=lambda number: number.value)


_FUNCTIONS: Final[dict[str, Callable[[list[Number]], Number]]] = {
    "abs": _abs,
    "max": _greatest,
    "min": _least,
    "round": _round,
    "sqrt": _sqrt,
}
