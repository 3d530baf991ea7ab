"""The cases of the matrix: a point, and what a process gets there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from typing_extensions import override

from tests.integration.points import API, CHORES

Action = Literal["kill", "stop", "term"]
ACTIONS: Final[tuple[Action, ...]] = ("kill", "stop", "term")
SIDES: Final = ("before", "after")
OUTSIDE: Final = ("asked", "sent", "done")
"""Moments inside an effect, struck from outside by the server which has it.

`asked:n`: the n-th request of the session is with the model. `sent:op`: a call is with its tool,
which has done nothing yet; `done:op`: it has, and its answer waits.
"""
DRAIN: Final = ("give_up", "remove")
"""Calls of a worker that drains: it is told to, and struck in the middle of it."""
CALLS: Final = ("tool", "sent", "done")
_OPS: Final = ("look1", "put1", "pay1", "pay2", "send1", "order1")
_TIMED: Final = tuple(
    f"{port}:{nth}:{side}"
    for port, nth in (("renew", 1), ("renew", 2), ("sweep", 1), ("owned", 1))
    for side in SIDES
)
TWICE: Final = "twice"
_TAKEOVER: Final = ("claim:1:after", "append:1:before", "append:1:after")
"""Where a successor is killed as well: it has the session, and writes that it has it."""
_EARLY: Final = ("fold:1:after", *_TAKEOVER)
"""The same while the journal is short: then it is read with those of others."""
_RECOVERED: Final = {
    "asked:2": (*_EARLY, "model:1:before", "model:1:after"),
    "sent:put1": (*_EARLY, "tool:1:before", "tool:1:after"),
    "done:put1": (*_EARLY, "tool:1:before", "tool:1:after"),
    "sent:pay2": (*_EARLY, "append:2:before"),
    "done:pay2": (*_EARLY, "append:2:before"),
    "sent:order1": (*_TAKEOVER, "check:1:before", "check:1:after"),
    "done:order1": (*_TAKEOVER, "check:1:before", "check:1:after"),
    "done:send1": (*_TAKEOVER, "append:2:before"),
}
"""By the first blow, where the second one falls: both hit the same call."""
_STOPPED_FIRST: Final = ("sent:pay2", "done:put1", "sent:order1")


@dataclass(frozen=True, slots=True)
class Case:
    """A point (`port:n:side`, `asked:n`, `sent:op`, `done:op`), and what happens there.

    `second` is where the successor is killed too, while it recovers from that.
    """

    point: str
    action: Action
    second: str | None = None

    @override
    def __str__(self) -> str:
        again = "" if self.second is None else f", then {self.second} kill"
        return f"{self.point} {self.action}{again}"

    @property
    def row(self) -> str:
        """Return the line of the table it belongs to."""
        return TWICE if self.second is not None else self.port

    @property
    def port(self) -> str:
        """Return what is called there."""
        return self.point.partition(":")[0]

    @property
    def of_api(self) -> bool:
        """Return whether an API process is struck, and not a worker."""
        return self.port in API

    @property
    def from_outside(self) -> bool:
        """Return whether the signal comes from outside, while an effect is held."""
        return self.port in OUTSIDE

    @property
    def held(self) -> bool:
        """Return whether the session is held at the model until the process was struck."""
        return self.port in CHORES or self.port in DRAIN


@dataclass(slots=True)
class Found:
    """What became of a case."""

    case: Case
    struck: bool = False
    faults: list[str] = field(default_factory=list)
    asked_back: int = 0
    again: int = 0
    """Deliveries of calls beyond one for each op."""
    seconds: float = 0.0


def cases(recorded: Sequence[Sequence[str]], requests: int) -> list[Case]:
    """Return every case: the recorded points of some runs, and those which no recording shows."""
    points = [
        *dict.fromkeys(point for run in recorded for point in run),
        *(f"asked:{n}" for n in range(1, requests + 1)),
        *(f"{kind}:{op}" for kind in ("sent", "done") for op in _OPS),
        *_TIMED,
        *(f"{port}:1:{side}" for port in DRAIN for side in SIDES),
    ]
    return [Case(point, action) for point in points for action in ACTIONS]


def twice() -> list[Case]:
    """Return the cases in which two blows fall, each on another worker."""
    return [
        Case(first, action, second)
        for first, seconds in _RECOVERED.items()
        for action in ACTIONS[:2]
        if action == "kill" or first in _STOPPED_FIRST
        for second in (seconds if action == "kill" else _TAKEOVER)
    ]
