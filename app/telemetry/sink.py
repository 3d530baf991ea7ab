"""Where spans go: the door to the SDK, which is imported only when a collector is configured.

Without one, no span work is done at all.
"""

import importlib
from collections.abc import Callable
from typing import Protocol

from app.telemetry.otel import OtelConfig
from app.telemetry.project import SpanRecord


class SpanSink(Protocol):
    """Takes finished spans and gets them out of the process without making anyone wait."""

    def put(self, span: SpanRecord) -> None:
        """Queue a span, or drop it and count that."""

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for no longer than this."""


def open_sink(config: OtelConfig, dropped: Callable[[int, str], None]) -> SpanSink | None:
    """Return where spans go, or None when no collector is configured.

    `dropped` is told how many spans were lost and why; it may be called from any thread.
    """
    if config.endpoint is None:
        return None
    # By name, because importing the SDK costs 0.2 s and some memory, which only its users pay.
    module = importlib.import_module("app.telemetry.export")
    sink: SpanSink = module.OtlpSink(config, dropped)
    return sink
