"""Spans to a collector over OTLP/HTTP: hand-built SDK spans into the SDK's batch processor.

Only `app.telemetry.sink.open_sink` imports this module. All sending happens in the processor's own
daemon thread; a full queue drops the span and counts it, so a dead collector costs nothing.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from typing_extensions import override

from app.telemetry import names
from app.telemetry.otel import OtelConfig
from app.telemetry.project import SpanRecord, Value

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope(names.SCOPE)
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)
_QUIET_S: Final = 60.0
_NOISY: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
)


class _Quiet:
    """Lets one line a minute through: a collector that is away is said once, not each second."""

    def __init__(self) -> None:
        self._last = -_QUIET_S

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.created - self._last < _QUIET_S:
            return False
        self._last = record.created
        return True


class _Counting(SpanExporter):
    """Counts what the processor takes from its queue and what the collector did not get."""

    def __init__(self, inner: SpanExporter, dropped: Callable[[int, str], None]) -> None:
        self._inner = inner
        self._dropped = dropped
        self.taken = 0

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = self._inner.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._dropped(len(spans), "export_failed")
        return result

    @override
    def shutdown(self) -> None:
        self._inner.shutdown()


class OtlpSink:
    """Puts spans into the batch processor; never waits and never raises for want of a collector."""

    def __init__(self, config: OtelConfig, dropped: Callable[[int, str], None]) -> None:
        """Start the processor's thread."""
        self._limit = config.value_limit
        self._max_queue = config.max_queue
        self._dropped = dropped
        self._resource = Resource.create(dict(config.resource))
        quiet = _Quiet()
        for name in _NOISY:
            logging.getLogger(name).addFilter(quiet)
        self._exporter = _Counting(OTLPSpanExporter(endpoint=config.endpoint), dropped)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=config.max_queue,
            schedule_delay_millis=config.delay_ms,
            max_export_batch_size=config.max_batch,
        )
        self._queued = 0
        self._closed = False

    def put(self, span: SpanRecord) -> None:
        """Queue a span; a full queue drops it and counts that."""
        if self._closed:
            self._dropped(1, "shut_down")
        elif self._queued - self._exporter.taken >= self._max_queue:
            self._dropped(1, "queue_full")
        else:
            self._queued += 1
            self._processor.on_end(self._readable(span))

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for no longer than this; what was not sent then is dropped.

        The SDK's own shutdown waits for up to 30 s; it runs in a daemon thread of which the
        process does not wait for longer than it wants to.
        """
        if self._closed:
            return
        self._closed = True
        thread = threading.Thread(target=self._processor.shutdown, daemon=True)
        thread.start()
        thread.join(timeout_s)
        left = self._queued - self._exporter.taken
        if left > 0:
            self._dropped(left, "shut_down")

    def _readable(self, span: SpanRecord) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        parent = None
        if span.parent_id is not None:
            parent = SpanContext(trace_id, int(span.parent_id, 16), False, _SAMPLED)  # noqa: FBT003 - positional in the API
        return ReadableSpan(
            name=_cut(span.name, self._limit),
            context=SpanContext(trace_id, int(span.span_id, 16), False, _SAMPLED),  # noqa: FBT003 - positional in the API
            parent=parent,
            resource=self._resource,
            attributes=self._bounded(span.attributes),
            events=tuple(
                Event(e.name, self._bounded(e.attributes), e.at_us * 1000) for e in span.events
            ),
            links=tuple(link for text in span.links if (link := _link(text)) is not None),
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            status=_ERROR if span.failed else _UNSET,
            start_time=span.start_us * 1000,
            end_time=span.end_us * 1000,
            instrumentation_scope=_SCOPE,
        )

    def _bounded(self, attributes: Mapping[str, Value]) -> dict[str, Value]:
        limit = self._limit
        return {
            key: _cut(value, limit) if isinstance(value, str) else value
            for key, value in attributes.items()
        }


def _cut(text: str, limit: int) -> str:
    """Cut at a character border, and replace what cannot be sent as UTF-8."""
    if len(text) > limit:
        text = text[:limit]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _link(traceparent: str) -> Link | None:
    parts = traceparent.split("-")
    try:
        context = SpanContext(int(parts[1], 16), int(parts[2], 16), is_remote=True)
    except (IndexError, ValueError):
        return None
    return Link(context) if context.is_valid else None
