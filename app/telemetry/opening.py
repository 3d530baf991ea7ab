"""Puts one process's telemetry together from the environment and a few plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.telemetry.content import Content, Sensitive
from app.telemetry.logs import LogConfig, Stream, make_logger
from app.telemetry.masking import Masker
from app.telemetry.metrics import Metrics
from app.telemetry.observer import TelemetryObserver
from app.telemetry.otel import OtelConfig
from app.telemetry.project import Projection
from app.telemetry.sink import open_sink


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """What the wiring knows: `environ` holds the OTEL_ variables.

    `providers` names the vendor of each model. `sensitive` returns the sensitive parameters of a
    tool; it is asked only when content was asked for.
    """

    environ: Mapping[str, str]
    log: LogConfig
    providers: Mapping[str, str] = field(default_factory=dict)
    jaeger_url: str | None = None
    sensitive: Sensitive | None = None


def open_observer(config: TelemetryConfig, stream: Stream) -> TelemetryObserver:
    """Return the observer; close it when the process ends."""
    otel = OtelConfig.from_environ(config.environ)
    projection = Projection(config.providers)
    if otel.content:
        mask = Masker(config.log.secrets).text
        content = Content(mask, otel.value_limit)
        if config.sensitive is not None:
            content = Content(mask, otel.value_limit, config.sensitive)
        projection = Projection(config.providers, content)
    metrics = Metrics(projection.provider)
    observer = TelemetryObserver(
        metrics=metrics,
        logger=make_logger(config.log, stream),
        projection=projection,
        sink=open_sink(otel, metrics.spans_dropped),
        sample=otel.sample,
        jaeger_url=config.jaeger_url,
    )
    for warning in otel.warnings:
        observer.log("telemetry.setting_ignored", level="warning", detail=warning)
    return observer
