"""Observers for tests: one that forgets everything and one that keeps it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from app.core.events import Event
from app.core.state import State


class NullObserver:
    """Takes note of nothing."""

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Forget it."""

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Forget it."""

    def traceparent(self, state: State, effect_key: str) -> str:
        """Return the context of the turn's root span."""
        del effect_key
        if state.trace is None:
            return ""
        return f"00-{state.trace.trace_id}-{state.trace.span_id}-01"

    def log(self, event: str, **fields: object) -> None:
        """Forget it."""


@dataclass
class RecordingObserver(NullObserver):
    """Keeps what it was told; checks that the events of a session come in order, without a gap."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    again: dict[str, list[Event]] = field(default_factory=dict)
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    @override
    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Keep a commit."""
        assert [e.seq for e in events] == list(range(events[0].seq, after.seq + 1))
        assert (0 if before is None else before.seq) == events[0].seq - 1
        self.events.setdefault(after.session_id, []).extend(events)

    @override
    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Keep a replay apart."""
        del before
        self.again.setdefault(after.session_id, []).extend(events)

    @override
    def log(self, event: str, **fields: object) -> None:
        """Keep a line."""
        self.lines.append((event, fields))
