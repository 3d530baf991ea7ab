"""A condition's text, read as tokens: how deep it nests, and how much work it can become.

CEL always ends, yet `['a'].map(x, x + x)` repeated twenty times makes a million characters, and
three loops inside each other make a cube. Both are seen in the text: loops are written out.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json

MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "has", "map"})
_LOOPS: Final = MACROS - {"has"}
_MATCHES: Final = "matches"
_OURS: Final = "linear_matches"
_TOKEN: Final = re.compile(
    r"""
    (?P<text>
        [bB]?[rR](?:\"{3}.*?\"{3} | '{3}.*?'{3} | "[^"]*" | '[^']*')
      | [bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
               | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    )
    | (?P<comment>//[^\n]*)
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<number>[0-9][0-9A-Za-z_]*)
    | (?P<space>\s+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NS_A_TOKEN: Final = 100
_NS_A_CHAR: Final = 1
_NS_A_CHAR_MATCHED: Final = 30
_NS_A_MEMBER: Final = 50
_TOKENS_AN_OPERATION: Final = 4


@dataclass(frozen=True, slots=True)
class Scan:
    """What the text of a condition shows.

    `text` is what is compiled: in it our own function stands for `matches`. `loops` are the
    macros that walk a list, `nested` how many stand inside each other at most, `growing` those
    that make a new list; `joined` counts the places where values are put together, `inner` are
    the names inside loops.
    """

    text: str
    tokens: int
    depth: int
    loops: int
    nested: int
    growing: int
    joined: int
    matches: bool
    inner: frozenset[str]
    bound: frozenset[str]
    names: frozenset[str]
    fields: frozenset[tuple[str, str]]
    matcher: str = _OURS

    def uses(self, variables: Iterable[str]) -> bool:
        """Return whether the text names one of these."""
        return not self.names.isdisjoint(variables)


def scan(text: str) -> Scan:
    """Return what a text shows, without understanding it."""
    kinds = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(text)]
    tokens = [token for token in kinds if token[0] not in {"space", "comment"}]
    depth, nested, inner = _nesting(tokens)
    loops = [at for at in range(len(tokens)) if _opens_loop(tokens, at)]
    return Scan(
        text="".join(_OURS if kind == ("name", _MATCHES) else kind[1] for kind in kinds),
        tokens=len(tokens),
        depth=depth,
        loops=len(loops),
        nested=nested,
        growing=sum(1 for at in loops if tokens[at][1] == "map"),
        joined=sum(1 for kind, mark in tokens if kind == "mark" and mark in "+,") - len(loops),
        matches=("name", _MATCHES) in tokens,
        inner=frozenset(inner),
        bound=frozenset(tokens[at + 2][1] for at in loops if at + 2 < len(tokens)),
        names=frozenset(name for kind, name in tokens if kind == "name"),
        fields=frozenset(_fields(tokens)),
    )


def _opens_loop(tokens: list[tuple[str, str]], at: int) -> bool:
    return tokens[at][0] == "name" and tokens[at][1] in _LOOPS and tokens[at + 1 : at + 2] == _OPEN


_OPEN: Final = [("mark", "(")]


def _nesting(tokens: list[tuple[str, str]]) -> tuple[int, int, set[str]]:
    """Return how deep brackets nest, how many loops do, and the names inside loops."""
    brackets: list[bool] = []
    depth = nested = inside = 0
    inner: set[str] = set()
    for at, (kind, mark) in enumerate(tokens):
        if kind == "name" and inside:
            inner.add(mark)
        if kind != "mark":
            continue
        if mark in "([{":
            looping = mark == "(" and at > 0 and _opens_loop(tokens, at - 1)
            brackets.append(looping)
            inside += looping
            depth, nested = max(depth, len(brackets)), max(nested, inside)
        elif mark in ")]}" and brackets:
            inside -= brackets.pop()
    return depth, nested, inner


def _fields(tokens: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Yield `a.b` where `a` is no field itself and `b` is not called."""
    for at in range(len(tokens) - 2):
        before = tokens[at - 1] if at else ("", "")
        after = tokens[at + 3] if at + 3 < len(tokens) else ("", "")
        (kind, name), dot, (kind_of_field, field) = tokens[at : at + 3]
        selects = kind == kind_of_field == "name" and dot[1] == "." != before[1]
        if selects and after[1] != "(":
            yield name, field


def weigh(found: Scan, variables: Mapping[str, Json]) -> float:
    """Return a bound, in nanoseconds, of what evaluation with these values can take.

    Loops that look at nothing but their own members go through the values once for every level
    but the first; those that look at something outside may go through all of them in every round.
    """
    count, chars = _measured(variables)
    grown = float(max(0, found.joined) + 1) ** (found.growing + 1)
    members, texts = (count + found.tokens) * grown, (chars + len(found.text)) * grown
    steps = found.tokens * _NS_A_TOKEN
    a_char = _NS_A_CHAR_MATCHED if found.matches else _NS_A_CHAR
    pass_over_all = found.tokens / _TOKENS_AN_OPERATION * (texts * a_char + members * _NS_A_MEMBER)
    if not found.nested:
        return steps + pass_over_all
    if not found.inner.isdisjoint(variables):
        return found.loops * float(members**found.nested) * (steps + pass_over_all)
    passes = float(members ** (found.nested - 1))
    return found.loops * (max(members, passes) * steps + passes * pass_over_all)


def _measured(values: Mapping[str, Json]) -> tuple[int, int]:
    """Return how many members all lists and objects have, and how many characters all texts."""
    members = chars = 0
    todo: list[Json] = list(values.values())
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            chars += len(value)
        elif isinstance(value, list | tuple):
            members += len(value)
            todo.extend(value)
        elif isinstance(value, Mapping):
            members += len(value)
            chars += sum(map(len, value))
            todo.extend(value.values())
    return members, chars
