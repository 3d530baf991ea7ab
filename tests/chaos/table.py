"""The outcome of the matrix as a table: one row for each port."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tests.chaos.cases import ACTIONS, TWICE, Found

MEANINGS = {
    "claim": "a session taken by a worker",
    "fold": "its journal read",
    "append": "events written",
    "inbox": "what users said, read",
    "model": "a call of the model",
    "tool": "a call of a tool",
    "publish": "events passed on to readers",
    "hot": "the state kept in Redis",
    "create": "a session made",
    "recall": "an idempotency key looked up",
    "deliver": "an inbox row written",
    "wake": "a session made due",
    "remember": "an idempotency key written",
    "commit": "the transaction of a request",
    "nudge": "workers told of it",
    "answer": "the request acknowledged",
    "asked": "the model has the request",
    "sent": "the tool has the call, no effect yet",
    "done": "the effect is there, its answer is not",
    "renew": "the lease renewed",
    "sweep": "lost owners looked for",
    "owned": "own sessions looked after",
    "give_up": "a session let go in a drain",
    "remove": "the lease ended in a drain",
    TWICE: "an effect, and its recovery by a successor",
}


MOST_MISSED: Final = 0.02
"""The share of cases that may not come to their point. How many appends a run has depends on
whether the results of calls that run beside each other are written together; so the last ones of
a recorded run are not in every run."""


def failed(found: Found) -> bool:
    """Return whether a case is violated."""
    return bool(found.faults)


def too_many_missed(found: Sequence[Found]) -> bool:
    """Return whether more cases missed their point than chance explains."""
    return sum(not one.struck for one in found) > MOST_MISSED * len(found)


def rows(found: Iterable[Found]) -> list[str]:
    """Return the lines of the table, in Markdown."""
    by_port: defaultdict[str, list[Found]] = defaultdict(list)
    for one in found:
        by_port[one.case.row].append(one)
    head = (
        "port",
        "what happens there",
        "points",
        *ACTIONS,
        "person asked",
        "calls again",
        "missed",
        "bad",
    )
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    order = [p for p in MEANINGS if p in by_port] + sorted(by_port.keys() - MEANINGS.keys())
    lines += [_row(port, by_port[port]) for port in order]
    everything = [one for port in order for one in by_port[port]]
    return [*lines, _row("all", everything)]


def _row(port: str, found: list[Found]) -> str:
    whole = [one for one in found if not failed(one)]
    cells = [
        port,
        MEANINGS.get(port, ""),
        len({(one.case.point, one.case.second) for one in found}),
        *(sum(one.struck and one.case.action == a for one in whole) for a in ACTIONS),
        sum(one.asked_back > 0 for one in found),
        sum(one.again for one in found),
        sum(not one.struck for one in whole),
        len(found) - len(whole),
    ]
    return f"| {' | '.join(map(str, cells))} |"
