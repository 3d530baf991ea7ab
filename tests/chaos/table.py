"""The outcome of the matrix as a table: one row for each port."""

from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.cases import ACTIONS, Found

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
}


def failed(found: Found) -> bool:
    """Return whether a case is violated, or never came to a point which every run has."""
    return bool(found.faults) or (missed(found) and found.case.steady)


def missed(found: Found) -> bool:
    """Return whether a case never came to its point."""
    return not found.struck


def rows(found: Iterable[Found]) -> list[str]:
    """Return the lines of the table, in Markdown."""
    by_port: defaultdict[str, list[Found]] = defaultdict(list)
    for one in found:
        by_port[one.case.port].append(one)
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


def _whole(found: Found) -> bool:
    return not missed(found) and not failed(found)


def _row(port: str, found: list[Found]) -> str:
    cells = [
        port,
        MEANINGS.get(port, ""),
        len({one.case.point for one in found}),
        *(sum(_whole(one) and one.case.action == action for one in found) for action in ACTIONS),
        sum(one.asked_back > 0 for one in found),
        sum(one.again for one in found),
        sum(missed(one) for one in found),
        sum(failed(one) for one in found),
    ]
    return f"| {' | '.join(map(str, cells))} |"
