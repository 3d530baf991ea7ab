"""The small ports: tokens, prompts, and an observer which keeps what it is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.canonical import Json
from app.core.events import Event, PromptRef
from app.core.state import State
from app.runtime.ports.tools import ToolReply


def as_it_is(output: Json, _most: int) -> ToolReply:
    """Bound nothing (a `Presenter`)."""
    return ToolReply(output, None)


class QuarterTokens:
    """`Tokens`: a quarter of the characters."""

    async def count(self, text: str, encoding: str) -> int:
        del encoding
        return -(-len(text) // 4)


class OnePrompt:
    """A `PromptCatalog` with one prompt."""

    def text(self, name: str, version: int) -> str:
        return f"You are {name} {version}."

    async def ref(self, name: str, encoding: str) -> PromptRef:
        del encoding
        return PromptRef(name, 1, "0" * 64, 8)


@dataclass
class KeepingObserver:
    """An `Observer`; what is committed must follow what was committed before."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    again: dict[str, list[Event]] = field(default_factory=dict)
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        seqs = [event.seq for event in events]
        first = 0 if before is None else before.seq
        assert seqs == list(range(first + 1, after.seq + 1))
        self.events.setdefault(after.session_id, []).extend(events)

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        assert (0 if before is None else before.seq) == events[0].seq - 1
        self.again.setdefault(after.session_id, []).extend(events)

    def traceparent(self, state: State, effect_key: str) -> str:
        del effect_key
        trace = state.trace
        return "" if trace is None else f"00-{trace.trace_id}-{trace.span_id}-01"

    def log(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    def said(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.lines if name == event]
