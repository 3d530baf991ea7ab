"""Spans as a pure projection: a stretch of the journal becomes one frozen `SpanRecord`.

Ids are derived from the trace and the event that opened the span, so a successor continues the
same tree, a span told twice is one span, and a request can name its span before it has ended.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.events import SessionCreated, Usage
from app.core.lifecycle import Status
from app.core.state import State
from app.telemetry import names
from app.telemetry.stretch import ModelTried, PhaseLeft, Stretch, ToolTried, TurnOver

Value = str | int | float | bool

DEFAULT_PROVIDER: Final = "openai"
"""What the conventions say of an endpoint that speaks OpenAI's protocol."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment inside a span."""

    name: str
    at_us: int
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """One finished span; ids in hex, times in microseconds since the epoch.

    `client` marks a request to another service; `failed` is the status ERROR; `links` are W3C
    traceparents.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_us: int
    end_us: int
    attributes: dict[str, Value]
    failed: bool = False
    client: bool = False
    links: tuple[str, ...] = ()
    events: tuple[SpanEvent, ...] = ()


def span_id(trace_id: str, kind: str, seq: int, attempt: int = 0) -> str:
    """Return the id of the span which the event at `seq` opens."""
    return hashlib.sha256(f"{trace_id}:{kind}:{seq}:{attempt}".encode()).hexdigest()[:16]


def traceparent(state: State, effect_key: str) -> str:
    """Return the context of the span that an effect's attempt will have; empty outside a turn."""
    trace = state.trace
    if trace is None:
        return ""
    kind, _, rest = effect_key.partition(":")
    name, _, attempt = rest.rpartition(":")
    own = trace.span_id
    if kind == "model":
        own = span_id(trace.trace_id, kind, int(name), int(attempt))
    elif kind == "tool":
        for open_call in state.calls:
            if open_call.call.call_id == name:
                own = span_id(trace.trace_id, kind, open_call.intended_seq, int(attempt))
    return f"00-{trace.trace_id}-{own}-{'01' if trace.sampled else '00'}"


def _no_content(_stretch: Stretch) -> dict[str, Value]:
    return {}


@dataclass(frozen=True, slots=True)
class Projection:
    """Makes spans of stretches.

    `providers` names the vendor of each model; `content` adds what was said, when asked for.
    """

    providers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[Stretch], dict[str, Value]] = _no_content

    def span(self, stretch: Stretch) -> SpanRecord:
        """Return the span of a stretch."""
        match stretch:
            case PhaseLeft():
                return _phase(stretch)
            case ModelTried():
                return self._chat(stretch)
            case ToolTried():
                return self._tool(stretch)
            case TurnOver():
                return self._root(stretch)

    def provider(self, model: str) -> str:
        """Return the provider's name as the conventions spell it."""
        return self.providers.get(model, DEFAULT_PROVIDER)

    def _chat(self, tried: ModelTried) -> SpanRecord:
        turn, trace = tried.turn, tried.turn.trace.trace_id
        created = turn.created
        model = created.model.name
        attributes: dict[str, Value] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: self.provider(model),
            names.REQUEST_MODEL: model,
            names.STEP: tried.step,
            names.SEQ: tried.seq,
            names.ATTEMPT: tried.attempt,
        }
        attributes.update(_identity(created))
        attributes.update(_prompt(created))
        attributes.update(_usage(tried.usage))
        if tried.answer is not None and tried.answer.model:
            attributes[names.RESPONSE_MODEL] = tried.answer.model
        return SpanRecord(
            f"{names.CHAT} {model}",
            trace,
            span_id(trace, "model", tried.seq, tried.attempt),
            span_id(trace, "phase", tried.parent_seq),
            tried.start_us,
            tried.end_us,
            _with_error(attributes, tried.error) | self.content(tried),
            failed=tried.error is not None,
            client=True,
        )

    def _tool(self, tried: ToolTried) -> SpanRecord:
        trace = tried.turn.trace.trace_id
        attributes: dict[str, Value] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: tried.name,
            names.TOOL_CALL: tried.call_id,
            names.STEP: tried.step,
            names.SEQ: tried.seq,
            names.ATTEMPT: tried.attempt,
        }
        attributes.update(_identity(tried.turn.created))
        return SpanRecord(
            f"{names.EXECUTE_TOOL} {tried.name}",
            trace,
            span_id(trace, "tool", tried.seq, tried.attempt),
            span_id(trace, "phase", tried.parent_seq),
            tried.start_us,
            tried.end_us,
            _with_error(attributes, tried.error) | self.content(tried),
            failed=tried.error is not None,
        )

    def _root(self, over: TurnOver) -> SpanRecord:
        turn, ended = over.turn, over.ended
        created = turn.created
        failed = ended.status is Status.FAILED
        error = None
        if failed:
            error = ended.stop_reason.value if ended.error is None else ended.error.kind.value
        attributes: dict[str, Value] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: self.provider(created.model.name),
            names.REQUEST_MODEL: created.model.name,
            names.AGENT_VERSION: str(created.agent_version),
            names.TURN: turn.number,
            names.EPOCH: over.epoch,
            names.STOP_REASON: ended.stop_reason.value,
        }
        attributes.update(_identity(created))
        attributes.update(_prompt(created))
        attributes.update(_usage(ended.usage))
        return SpanRecord(
            f"{names.INVOKE_AGENT} {created.agent}",
            turn.trace.trace_id,
            turn.trace.span_id,
            None,
            turn.at_us,
            over.end_us,
            _with_error(attributes, error) | self.content(over),
            failed=failed,
            links=() if turn.link is None else (turn.link,),
        )


def _phase(left: PhaseLeft) -> SpanRecord:
    trace = left.turn.trace
    return SpanRecord(
        left.phase.value.lower(),
        trace.trace_id,
        span_id(trace.trace_id, "phase", left.seq),
        trace.span_id,
        left.start_us,
        left.end_us,
        {
            names.STATE_FROM: left.phase.value,
            names.STATE_TO: left.target.value,
            names.STEP: left.step,
            names.SEQ: left.seq,
        },
        events=tuple(
            SpanEvent(names.GUARD_TRIPPED, at_us, {names.GUARD: guard})
            for at_us, guard in left.guards
        ),
    )


def _identity(created: SessionCreated) -> dict[str, Value]:
    return {names.CONVERSATION: created.session_id, names.AGENT_NAME: created.agent}


def _prompt(created: SessionCreated) -> dict[str, Value]:
    prompt = created.prompt
    return {names.PROMPT_NAME: prompt.name, names.PROMPT_VERSION: str(prompt.version)}


def _usage(usage: Usage) -> dict[str, Value]:
    return {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHED_TOKENS: usage.cached_tokens,
    }


def _with_error(attributes: dict[str, Value], error: str | None) -> dict[str, Value]:
    if error is not None:
        attributes[names.ERROR_TYPE] = error
    return attributes
