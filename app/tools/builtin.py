"""The built-in tools that are pure functions of their arguments and the clock."""

from collections.abc import Callable, Mapping
from typing import Final

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.process import Clock
from app.tools.calculate import calculate
from app.tools.calculate_tokens import MOST_CHARS, ExpressionError
from app.tools.moment import ZoneError, moment

CALCULATE: Final = ToolSpec(
    name="calculate",
    version=1,
    kind=ToolKind.BUILTIN,
    description=(
        "Compute an arithmetic expression exactly. Use it for every calculation with numbers, "
        "however simple; do not compute in your head. It cannot solve equations or use units, "
        "variables or dates. Returns {result}: a number, or decimal text where a number would "
        "lose digits; {exact: false} besides when it had to be rounded."
    ),
    parameters={
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "minLength": 1,
                "maxLength": MOST_CHARS,
                "description": (
                    "Numbers with + - * / // % ** and parentheses; functions round(x, places) "
                    "(a half goes away from zero), min, max, abs, sqrt. 20% is 0.2. "
                    "Example: 299 * 0.8 - 50"
                ),
            }
        },
        "required": ["expression"],
        "additionalProperties": False,
    },
    effect=EffectClass.READ,
)

NOW: Final = ToolSpec(
    name="now",
    version=1,
    kind=ToolKind.BUILTIN,
    description=(
        "Tell the current date and time. Use it whenever an answer depends on today, the time or "
        "the day of the week; never guess them. Not for other dates. Returns {now (RFC 3339), "
        "timezone, weekday}."
    ),
    parameters={
        "type": "object",
        "properties": {
            "timezone": {
                "type": "string",
                "default": "UTC",
                "maxLength": 100,
                "description": "An IANA name such as Europe/Berlin, or an offset such as +08:00.",
            }
        },
        "additionalProperties": False,
    },
    effect=EffectClass.READ,
    polling=True,
)

BUILTINS: Final[tuple[ToolSpec, ...]] = (CALCULATE, NOW)
"""The built-in tools that there are; their names cannot be registered."""


PURE: Final = frozenset({CALCULATE.name, NOW.name})
"""Those that do nothing but compute, in less than a few milliseconds."""


class Builtins:
    """Carries out the built-in tools."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._run: dict[str, Callable[[Mapping[str, Json]], Json]] = {
            CALCULATE.name: _calculate,
            NOW.name: self._now,
        }

    def run(self, name: str, arguments: Mapping[str, Json]) -> Json:
        """Return what a built-in tool answers.

        Raises:
            ToolFailure: when the arguments have no answer, or there is no such tool.

        """
        function = self._run.get(name)
        if function is None:
            message = f"There is no built-in tool {name!r} here."
            raise ToolFailure(Fault.of(FaultKind.INTERNAL, message, sent=False))
        try:
            return function(arguments)
        except (ExpressionError, ZoneError) as error:
            raise ToolFailure(Fault.of(FaultKind.INVALID_ARGS, str(error), sent=False)) from None

    def _now(self, arguments: Mapping[str, Json]) -> Json:
        return moment(self._clock.now_us(), str(arguments.get("timezone") or "UTC"))


def _calculate(arguments: Mapping[str, Json]) -> Json:
    return calculate(str(arguments.get("expression", "")))
