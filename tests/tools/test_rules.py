"""Conditions: what they say of values, what is refused, and that none of them takes long."""

import contextlib
import threading
import time

import pytest

from app.core.canonical import Json
from app.tools.rule_scan import scan, weigh
from app.tools.rules import FUNCTIONS, MOST_CHARS, RuleError, compile_rule

_LONG_S = 2.0
"""Far more than the tenth of a second that is allowed, on a loaded machine too."""


def holds(rule: str, /, **args: Json) -> bool:
    return compile_rule(rule).holds({"args": args})


@pytest.mark.parametrize(
    ("text", "args", "answer"),
    [
        ("args.amount > 100", {"amount": 150}, True),
        ("args.amount > 100", {"amount": 100}, False),
        ("args.amount > 100", {"amount": 100.5}, True),
        ("args.amount > 99.5", {"amount": 100}, True),
        ("args.amount == 100", {"amount": 100.0}, True),
        ("args.amount > 100", {"amount": 2**70}, True),
        ("args.amount > 100", {"amount": -(2**70)}, False),
        ("has(args.note) && args.note != ''", {}, False),
        ("args.to.endsWith('@example.com')", {"to": "a@example.com"}, True),
        ("args.to in ['a', 'b']", {"to": "c"}, False),
        ("!(args.to in args.known)", {"to": "c", "known": ["a"]}, True),
        ("args.items.exists(i, i.price > 10)", {"items": [{"price": 3}, {"price": 10.5}]}, True),
        ("args.items.map(i, i.n).size() == 2", {"items": [{"n": 1}, {"n": 1}]}, True),
        ("timestamp(args.at).getFullYear() > 2030", {"at": "2031-01-01T00:00:00Z"}, True),
        ("args.to.matches('^a+$')", {"to": "aaa"}, True),
        ("args.to == 'matches' && args.to.matches(args.to)", {"to": "matches"}, True),
        ("args.text == 'x.map(y, ' || '//' == args.text", {"text": "//"}, True),
        ("args['a b'] == 1 // why", {"a b": 1}, True),
        ("true", {}, True),
    ],
)
def test_conditions_hold_or_do_not(text: str, args: dict[str, Json], answer: bool) -> None:  # noqa: FBT001
    assert holds(text, **args) is answer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("args.amount >", "Syntax error"),
        ("", "Syntax error"),
        ("amount > 1", "no variable 'amount'"),
        ("arg.amount > 1", "did you mean 'args'"),
        ("args.l.exists(x, x > y)", "no variable 'y'"),
        ("args.a.startWith('x')", "did you mean 'startsWith'"),
        ("1", "neither true nor false"),
        ("1 / 0 > 1", "division by zero"),
        ("args.a == '" + "x" * MOST_CHARS + "'", "the most is 1,000"),
        ("(" * 40 + "true" + ")" * 40, "nested deeper than 24"),
        ("['a']" + ".map(x, x + x)" * 30 + " == []", "too large"),
        ("['a']" + ".map(x, [x, x])" * 30 + " == []", "too large"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(RuleError) as raised:
        compile_rule(text)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("args.amount > 100", {}),
        ("args.amount > 100", {"amount": "150"}),
        ("args.amount > 100", {"amount": None}),
        ("args.amount * 9223372036854775807 > 1", {"amount": 3}),
        ("args.amount", {"amount": 3}),
        ("args.a.b.c == 1", {"a": {}}),
        ("args.a.matches('(')", {"a": "x"}),
        ("!args.a.matches('(')", {"a": "x"}),
        ("args.a.matches('(a{1,100}){50}b')", {"a": "a"}),
        ("args.a.matches('x')", {"a": "x" * 100_000}),
        ("args.a == 'x'", {"a": "\ud800"}),
    ],
)
def test_no_answer_is_an_error_not_a_no(text: str, args: dict[str, Json]) -> None:
    with pytest.raises(RuleError):
        holds(text, **args)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("args.l.all(i, args.l.all(j, args.l.all(k, k >= 0)))", {"l": list(range(2000))}),
        ("args.l.exists(i, args.l.exists(j, j == -1))", {"l": list(range(20_000))}),
        ("args.l.map(x, string(x) + args.s).size() < 0", {"l": [1] * 20_000, "s": "x" * 50_000}),
        ("args.l.exists(i, args.m == args.n)", {"l": [0] * 20_000, "m": ["x"], "n": ["y"]}),
        ("args.s" + " + args.s" * 100 + " == ''", {"s": "x" * 1_000_000}),
        ("args.s.matches('(a|aa)+$')", {"s": "a" * 60_000 + "b"}),
        ("args.l.exists(i, i > 5)", {"l": [1] * 300_000}),
    ],
)
def test_no_condition_takes_long_whatever_the_values(text: str, args: dict[str, Json]) -> None:
    rule = compile_rule(text)
    began = time.process_time()
    with contextlib.suppress(RuleError):
        rule.holds({"args": args})
    assert time.process_time() - began < _LONG_S


def test_small_values_are_never_too_large() -> None:
    items: list[Json] = [{"price": 1.5, "name": "x" * 20, "tags": ["a", "b"]} for _ in range(200)]
    assert not holds("args.items.exists(i, i.price > 10 && i.name != 'x')", items=items)
    few = items[:30]
    assert not holds("args.items.exists(i, i.tags.exists(t, t == i.name))", items=few)
    assert holds("args.items.all(i, i.price < args.most)", items=few, most=2)


def test_what_is_weighed_is_seen_outside_of_texts_only() -> None:
    quoted = scan(r"""args.a == "x.map(" || args.b == r'\' || args.c == '''map(all(''' """)
    assert (quoted.loops, quoted.nested, quoted.depth) == (0, 0, 0)
    inside = scan("args.l.all(i, i.m.exists(j, j > 0)) && args.n.filter(k, k > 1).size() > 0")
    assert (inside.loops, inside.nested, inside.growing) == (3, 2, 0)
    assert inside.bound == {"i", "j", "k"}
    assert {field for _, field in inside.fields} == {"l", "n", "m"}
    assert weigh(inside, {"args": {}}) < weigh(inside, {"args": {"l": [1] * 1000}})


def test_every_function_that_is_offered_exists() -> None:
    at = "timestamp('2020-01-01T00:00:00Z')"
    of_values = {
        "contains": "'a'.contains('a')",
        "duration": "duration('1s') > duration('0s')",
        "endsWith": "'a'.endsWith('a')",
        "matches": "'a'.matches('a')",
        "size": "'a'.size() == 1",
        "startsWith": "'a'.startsWith('a')",
        "timestamp": f"{at} == {at}",
    }
    for name in sorted(FUNCTIONS):
        made = f"type({name}('1')) != bool"
        text = of_values.get(name, f"{at}.{name}() >= 0" if name.startswith("get") else made)
        assert compile_rule(text).holds({}), name


def test_other_variables_can_be_offered() -> None:
    rule = compile_rule("steps.a.output == task", ("task", "steps"))
    assert rule.holds({"task": "x", "steps": {"a": {"output": "x"}}})


def test_threads_share_a_condition() -> None:
    rule = compile_rule("args.n % 2 == 0 && 'a'.matches(args.p)")
    wrong: list[int] = []

    def ask(first: int) -> None:
        every = range(first, 400 + first)
        wrong.extend(
            n for n in every if rule.holds({"args": {"n": n, "p": "a"}}) is not (n % 2 == 0)
        )

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
