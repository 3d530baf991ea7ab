"""An observer with its parts at hand, for tests."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.telemetry.logs import LogConfig, make_logger
from app.telemetry.metrics import Metrics
from app.telemetry.observer import TelemetryObserver
from app.telemetry.project import Projection, SpanRecord
from app.telemetry.sink import SpanSink
from tests.telemetry.journey import START_US, Commit, Journey


@dataclass
class ListSink:
    """Keeps spans."""

    spans: list[SpanRecord] = field(default_factory=list)

    def put(self, span: SpanRecord) -> None:
        """Keep one."""
        self.spans.append(span)

    def close(self, timeout_s: float) -> None:
        """Do nothing."""


class Rig:
    """One process's telemetry."""

    def __init__(
        self,
        *,
        sink: SpanSink | None = None,
        level: str = "info",
        secrets: tuple[str, ...] = (),
        projection: Projection | None = None,
    ) -> None:
        """Put it together."""
        self.kept = ListSink()
        self.stream = io.BytesIO()
        self.projection = projection or Projection()
        self.metrics = Metrics(self.projection.provider)
        self.config = LogConfig(lambda: START_US, level=level, secrets=secrets)
        self.observer = TelemetryObserver(
            metrics=self.metrics,
            logger=make_logger(self.config, self.stream),
            projection=self.projection,
            sink=sink or self.kept,
            jaeger_url="http://127.0.0.1:16686/",
        )

    def see(self, commits: Iterable[Commit]) -> "Rig":
        """Let the observer take note of commits."""
        for commit in commits:
            self.observer.committed(commit.before, commit.events, commit.after)
        return self

    def lines(self) -> list[dict[str, object]]:
        """Return the log lines so far."""
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def text(self) -> str:
        """Return the metrics."""
        return self.metrics.render().decode()


def spans_of(journey: Journey) -> list[SpanRecord]:
    """Return every span of a journey."""
    return Rig().see(journey.commits).kept.spans


def assert_one_tree(spans: Sequence[SpanRecord]) -> None:
    """Check that the spans form one tree: one root, each parent there, each child within time."""
    by_id = {span.span_id: span for span in spans}
    assert len({span.trace_id for span in spans}) == 1
    assert len([s for s in by_id.values() if s.parent_id is None]) == 1
    for span in by_id.values():
        assert span.end_us >= span.start_us
        if span.parent_id is not None:
            parent = by_id[span.parent_id]
            assert parent.start_us <= span.start_us
            assert span.end_us <= parent.end_us
