"""The Observer port: one hook a commit gives spans, metrics and log lines.

committed(before, events, after)
  └─ stretches: what came to its end ─┬─ spans → sink (only where a collector is configured)
                                      ├─ metrics
                                      └─ log lines, one a transition
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from app.core.events import (
    Body,
    Event,
    GuardTripped,
    ModelFailed,
    Outcome,
    PhaseEntered,
    SecurityFlagged,
    SessionClaimed,
    ToolFinished,
    TurnEnded,
)
from app.core.state import State
from app.telemetry.logs import Logger
from app.telemetry.metrics import Metrics
from app.telemetry.project import Projection, traceparent
from app.telemetry.sink import SpanSink
from app.telemetry.stretch import Stretch
from app.telemetry.timeline import stretches


class TelemetryObserver:
    """Spans, metrics and log lines of one process."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        logger: Logger,
        projection: Projection,
        sink: SpanSink | None = None,
        sample: Callable[[str], bool] = bool,
        jaeger_url: str | None = None,
    ) -> None:
        """Take its parts; without a sink no span is made."""
        self.metrics = metrics
        self.sample = sample
        self._logger = logger
        self._projection = projection
        self._sink = sink
        self._jaeger = None if jaeger_url is None else jaeger_url.rstrip("/")
        self._informs = logger.is_enabled_for(logging.INFO)
        self._warns = logger.is_enabled_for(logging.WARNING)

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Take note of events that are durable now."""
        try:
            over = stretches(before, events)
            if self._sink is not None:
                self._export(self._sink, over)
            self.metrics.committed(events, over, after)
            if self._informs or self._warns:
                self._write(events, after)
        except Exception as error:  # noqa: BLE001 - telemetry may fail, a session may not fail by it
            self._broken("committed", error)

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        """Make the spans of an open turn again; they have the ids they had before."""
        if self._sink is None:
            return
        try:
            self._export(self._sink, stretches(before, events))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._broken("replayed", error)
        del after

    def traceparent(self, state: State, effect_key: str) -> str:
        """Return the W3C trace context for a request that this effect makes."""
        return traceparent(state, effect_key)

    def trace_url(self, trace_id: str) -> str | None:
        """Return where people look at a trace, if anywhere."""
        return None if self._jaeger is None else f"{self._jaeger}/trace/{trace_id}"

    def log(self, event: str, **fields: object) -> None:
        """Write one structured log line, at level `info` unless `level` says otherwise."""
        level = fields.pop("level", "info")
        write = getattr(self._logger, str(level), self._logger.info)
        write(event, **fields)

    def close(self, timeout_s: float = 3.0) -> None:
        """Send the spans that are queued, for no longer than this; blocks."""
        if self._sink is not None:
            self._sink.close(timeout_s)

    def _export(self, sink: SpanSink, over: Sequence[Stretch]) -> None:
        span = self._projection.span
        for stretch in over:
            if stretch.turn.trace.sampled:
                sink.put(span(stretch))

    def _broken(self, where: str, error: Exception) -> None:
        self.metrics.telemetry_error()
        self._logger.error("telemetry.failed", where=where, error=type(error).__name__)

    def _write(self, events: Sequence[Event], after: State) -> None:
        """Write a line for each transition and for what somebody may want to look at.

        Names, kinds and numbers only: no text of a user, a model or a tool, no fault's message.
        """
        session_id = after.created.session_id
        trace_id = "" if after.trace is None else after.trace.trace_id
        for event in events:
            told = _fields(event)
            if told is not None:
                warn, fields = told
                write = self._logger.warning if warn else self._logger.info
                write(
                    event.body.TYPE,
                    at_us=event.at_us,
                    session_id=session_id,
                    trace_id=trace_id,
                    turn=event.turn,
                    step=event.step,
                    seq=event.seq,
                    **fields,
                )


def _fields(event: Event) -> tuple[bool, dict[str, object]] | None:
    """Return whether an event is worth a warning and what is said of it; None: nothing."""
    say = _SAID.get(type(event.body))
    if say is None:
        return None
    fields = say(event.body)
    return None if fields is None else (type(event.body) in _WARNINGS, fields)


def _tool_failed(body: ToolFinished) -> dict[str, object] | None:
    if body.outcome is Outcome.OK:
        return None
    kind = None if body.error is None else body.error.kind
    return {"call_id": body.call_id, "outcome": body.outcome, "kind": kind}


def _model_failed(body: ModelFailed) -> dict[str, object]:
    return {"kind": body.error.kind, "attempt": body.attempt}


_WARNINGS: Final = frozenset({ModelFailed, SecurityFlagged, ToolFinished})

_SAID: Final[dict[type[Body], Callable[..., dict[str, object] | None]]] = {
    PhaseEntered: lambda body: {"from": body.source, "to": body.target},
    TurnEnded: lambda body: {"status": body.status, "stop_reason": body.stop_reason},
    GuardTripped: lambda body: {"guard": body.guard},
    SecurityFlagged: lambda body: {"guard": body.guard, "call_id": body.call_id},
    SessionClaimed: lambda body: {"worker": body.worker, "epoch": body.epoch},
    ModelFailed: _model_failed,
    ToolFinished: _tool_failed,
}
