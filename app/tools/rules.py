"""Conditions in CEL, the Common Expression Language: read once, asked of every call's arguments.

text ── scan ── compile ──► Rule ── weigh the values ── evaluate ──► bool
         │        │                     │                  └ no boolean, or it fails: RuleError
         │        └ unknown names       └ too much work for these values: RuleError
         └ too long, too deep

Evaluation holds the interpreter and cannot be broken off, so its work is bounded before it begins.
Patterns of `matches` run on the linear-time engine that schemas use, not on CEL's own.
"""

import functools
from collections.abc import Mapping
from typing import Final

import cel

from app.core.canonical import Json
from app.core.toolbox import nearest
from app.tools.patterns import PatternError, compiled
from app.tools.rule_scan import MACROS, Scan, scan, weigh

MOST_CHARS: Final = 1000
MOST_DEPTH: Final = 24
_CACHED: Final = 2048
_MOST_WORK: Final = 100_000_000
_LONGEST_PATTERN: Final = 200
_LONGEST_TEXT: Final = 65_536
_SHOWN: Final = 200
_TYPES: Final = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
)
_TIMES: Final = frozenset(
    {
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
    }
)
_TESTS: Final = frozenset({"contains", "endsWith", "matches", "size", "startsWith"})
_MADE: Final = frozenset(
    {"bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
FUNCTIONS: Final = _TESTS | _MADE | _TIMES
"""The functions there are, beside operators and macros."""


class RuleError(ValueError):
    """A condition cannot be read, or gave no answer for these values."""


class Rule:
    """A condition that was compiled; threads may share it."""

    __slots__ = ("_program", "_scan")

    def __init__(self, program: cel.Program, found: Scan) -> None:
        """Keep the program and what was found in its text."""
        self._program = program
        self._scan = found

    @property
    def fields(self) -> frozenset[tuple[str, str]]:
        """Return what is read of the variables directly: `args.city` is ("args", "city")."""
        return self._scan.fields

    def holds(self, variables: Mapping[str, Json]) -> bool:
        """Return whether the condition holds for these values of its variables.

        Raises:
            RuleError: when it gives no boolean, fails, or would take too long.

        """
        if weigh(self._scan, variables) > _MOST_WORK:
            raise RuleError("the values are too large for this condition")
        patterns = _Patterns() if self._scan.matches else None
        given: cel.Context | dict[str, object] = dict(variables)
        if patterns is not None:
            given = cel.Context(dict(variables), {self._scan.matcher: patterns.matches})
        try:
            answer: object = self._program.execute(given)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the engine is no Exception
            raise RuleError(_shortened(error)) from None
        if patterns is not None and patterns.fault is not None:
            raise RuleError(patterns.fault)
        if not isinstance(answer, bool):
            raise RuleError("the condition is neither true nor false")
        return answer


class _Patterns:
    """`matches` on the linear-time engine; what goes wrong is kept, since the engine prints it."""

    __slots__ = ("fault",)

    def __init__(self) -> None:
        self.fault: str | None = None

    def matches(self, text: object, pattern: object) -> bool:
        if not isinstance(text, str) or not isinstance(pattern, str):
            self.fault = "'matches' takes texts"
        elif len(pattern) > _LONGEST_PATTERN or len(text) > _LONGEST_TEXT:
            self.fault = "the text or pattern of 'matches' is too long"
        else:
            try:
                return compiled(pattern).search(text) is not None
            except PatternError as error:
                self.fault = f"the pattern is not taken: {error}"
        return False


@functools.lru_cache(maxsize=_CACHED)
def compile_rule(text: str, variables: tuple[str, ...] = ("args",)) -> Rule:
    """Return the condition; `variables` are the names that it may use.

    Raises:
        RuleError: when it cannot be read, saying why.

    """
    if len(text) > MOST_CHARS:
        raise RuleError(f"{len(text):,} characters; the most is {MOST_CHARS:,}")
    found = scan(text)
    if found.depth > MOST_DEPTH:
        raise RuleError(f"nested deeper than {MOST_DEPTH} levels")
    try:
        program = cel.compile(found.text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the parser is no Exception
        raise RuleError(_shortened(error)) from None
    _known(program, found, variables)
    rule = Rule(program, found)
    if not found.uses(variables):
        rule.holds({})  # what looks at nothing gives the same answer always: now is the time
    return rule


def _known(program: cel.Program, found: Scan, variables: tuple[str, ...]) -> None:
    """Refuse names that stand for nothing: they would fail at every call."""
    for name in program.variables():
        if name not in variables and name not in _TYPES and name not in found.bound:
            raise RuleError(f"there is no variable {name!r}{_hint(name, variables)}")
    for name in program.functions():
        if name.isidentifier() and not name.startswith("_") and name not in FUNCTIONS:
            if name == found.matcher:
                continue
            raise RuleError(f"there is no function {name!r}{_hint(name, FUNCTIONS | MACROS)}")


def _hint(name: str, known: tuple[str, ...] | frozenset[str]) -> str:
    close = nearest(name, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def _shortened(error: BaseException) -> str:
    """Return the first line of what the engine says; it goes on to quote the whole text."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    said = lines[0].rpartition("ERROR: <input>:")[2] if lines else type(error).__name__
    return said[:_SHOWN]
