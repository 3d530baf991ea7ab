"""Replay: run `decide` again over a journal and find where it would decide otherwise today.

Inputs are not in the journal, only what was decided upon them. So at each place every input that
could have led to what comes next is tried (`app.core.proposals`); the one whose events are those
of the journal is taken to be the one that came. Where none is, the journal and this code diverge.

Three things are in a journal without a decision, and are folded: what creation writes, what a fork
took over from its parent, and the end of a session that nobody could run. What a fork makes of that
is decided, once, and so is decided again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.core.draft import IllegalTransitionError
from app.core.events import (
    Event,
    ModelFailed,
    SessionClaimed,
    SessionCreated,
    SessionForked,
    ToolAttempted,
    ToolChecked,
    TurnEnded,
    TurnStarted,
)
from app.core.evolve import BrokenJournalError, evolve, fold
from app.core.inputs import Input
from app.core.lifecycle import StopReason
from app.core.machine import Decision, decide
from app.core.phases.forking import Forking, forked
from app.core.proposals import LOOK_AHEAD, forking, proposals
from app.core.state import State

_GIVEN_UP: Final = StopReason.UNRECOVERABLE_ERROR
_MORE: Final = 0
_WAITS: Final = (ModelFailed, ToolAttempted, ToolChecked)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event that would be another one today."""

    seq: int
    """Where it stands, or would stand."""
    expected: Event | None
    """What would be decided today; None when nothing that can come leads to `actual`."""
    actual: Event | None
    """What the journal holds; None when it ends before."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found."""

    events: int
    """How many events were the same, or were folded without a decision."""
    folded: int
    """How many of them were folded without a decision."""
    divergence: Divergence | None
    """The first divergence; None when there is none."""


class Replay:
    """Takes a journal page by page, in its order, and keeps only the state and what lies ahead."""

    def __init__(self) -> None:
        """Start before the first event."""
        self._state: State | None = None
        self._ahead: list[Event] = []
        self._read = 0
        self._parent: str | None = None
        self._events = 0
        self._folded = 0
        self._divergence: Divergence | None = None

    @property
    def diverged(self) -> bool:
        """Return whether a divergence was found, so that nothing more need be read."""
        return self._divergence is not None

    def take(self, events: Iterable[Event]) -> None:
        """Replay what can be replayed with these next events.

        Raises:
            BrokenJournalError: when they do not follow those before.

        """
        for event in events:
            if event.seq != self._read + 1:
                raise BrokenJournalError(f"Event {event.seq} does not follow {self._read}.")
            self._read = event.seq
            if not self.diverged:
                self._ahead.append(event)
        self._go_on(final=False)

    def end(self) -> Replayed:
        """Replay the rest, and say what was found."""
        self._go_on(final=True)
        return Replayed(self._events, self._folded, self._divergence)

    def _go_on(self, *, final: bool) -> None:
        at = 0
        while at < len(self._ahead) and not self.diverged:
            taken = self._next(self._ahead[at : at + LOOK_AHEAD], at, final=final)
            if taken == _MORE:
                break
            at += taken
        del self._ahead[:at]
        self._events += at

    def _next(self, rest: Sequence[Event], at: int, *, final: bool) -> int:
        """Replay one decision, or fold one event; return how many events that were."""
        state = self._state
        if state is None or self._undecided(state, rest[0]):
            if isinstance(rest[0].body, SessionCreated):
                self._parent = rest[0].body.parent
            self._state = evolve(state, rest[0])
            self._folded += 1
            return 1
        if not final and not self._enough(rest, at):
            return _MORE
        best, same = Decision((), state), 0
        for decision in self._decisions(state, rest, at):
            there = self._ahead[at : at + len(decision.events)]
            count = _same(decision.events, there)
            if count == len(there) < len(decision.events) and not final:
                return _MORE
            if count > same or not best.events:
                best, same = decision, count
        if 0 < same == len(best.events):
            there = self._ahead[at : at + same]
            self._state = best.state if tuple(there) == best.events else fold(there, state)
            return same
        beyond = at + same
        actual = self._ahead[beyond] if beyond < len(self._ahead) else None
        expected = best.events[same] if best.events else None
        self._divergence = Divergence(state.seq + 1 + same, expected, actual)
        return same

    def _decisions(self, state: State, rest: Sequence[Event], at: int) -> Iterator[Decision]:
        """Return what would be decided upon whatever may have come."""
        body = rest[0].body
        if isinstance(body, SessionForked):
            self._parent = None
            yield _forked(state, forking(rest[0].at_us, body, self._ahead[at:]))
        for given in proposals(state, rest):
            yield _decided(state, given)

    def _enough(self, rest: Sequence[Event], at: int) -> bool:
        """Return whether what is read tells what came; a fork is told by all that it wrote."""
        if isinstance(rest[0].body, SessionForked):
            return any(isinstance(event.body, SessionClaimed) for event in self._ahead[at:])
        return len(rest) == LOOK_AHEAD

    def _undecided(self, state: State, event: Event) -> bool:
        body = event.body
        if self._parent is not None:
            return not (isinstance(body, SessionForked) and body.parent == self._parent)
        creation = isinstance(body, TurnStarted) and state.turn == 0 and not state.queue
        # A decision moves to DONE before it ends a turn; who could not fold ended it at once.
        obituary = isinstance(body, TurnEnded) and body.stop_reason is _GIVEN_UP
        return creation or obituary


def replay(events: Iterable[Event]) -> Replayed:
    """Replay a whole journal."""
    run = Replay()
    run.take(events)
    return run.end()


def _decided(state: State, given: Input) -> Decision:
    try:
        return decide(state, given)
    except IllegalTransitionError:
        return Decision((), state)


def _forked(state: State, asked: Forking) -> Decision:
    try:
        events = forked(state, asked)
    except IllegalTransitionError:
        return Decision((), state)
    after = state
    for event in events:
        after = evolve(after, event)
    return Decision(events, after)


def _same(decided: Sequence[Event], there: Sequence[Event]) -> int:
    """Return how many events are the same from the first on."""
    for index, (expected, actual) in enumerate(zip(decided, there, strict=False)):
        if expected != actual and not _but_for_chance(expected, actual):
            return index
    return min(len(decided), len(there))


def _but_for_chance(expected: Event, actual: Event) -> bool:
    """Return whether two failures differ only in the jitter of the wait, which nobody wrote down.

    Without jitter the wait is the shortest there is; with it, it is up to twice as long.
    """
    one, other = expected.body, actual.body
    if not (isinstance(one, _WAITS) and isinstance(other, _WAITS)):
        return False
    if one.retry_at_us is None or other.retry_at_us is None:
        return False
    shortest, waited = one.retry_at_us - expected.at_us, other.retry_at_us - actual.at_us
    if not shortest <= waited <= 2 * shortest:
        return False
    return replace(expected, body=replace(one, retry_at_us=other.retry_at_us)) == actual
