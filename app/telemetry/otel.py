"""The standard OTEL_ variables, read once into a frozen value."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

_SAMPLE_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """What the environment says about traces. `endpoint` is the full URL, None for no export."""

    endpoint: str | None = None
    resource: Mapping[str, str] = field(default_factory=dict)
    ratio: float = 1.0
    disabled: bool = False
    max_queue: int = 2048
    max_batch: int = 512
    delay_ms: float = 5000.0
    value_limit: int = 1024
    content: bool = False
    warnings: tuple[str, ...] = ()

    def sample(self, trace_id: str) -> bool:
        """Return whether the spans of a trace are wanted, the same answer in every process."""
        if self.disabled:
            return False
        bound = round(self.ratio * (1 << _SAMPLE_BITS))
        return int(trace_id[-16:], 16) < bound

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "OtelConfig":
        """Read the variables; what cannot be read is replaced by its default and told about."""
        notes: list[str] = []
        disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        queue = int(_number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", 2048, notes))
        batch = int(_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, notes))
        limit = _number(environ, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", 1024, notes)
        capture = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
        return cls(
            endpoint=None if disabled else _endpoint(environ, notes),
            resource=_resource(environ),
            ratio=_ratio(environ, notes),
            disabled=disabled,
            max_queue=queue,
            max_batch=min(batch, queue),
            delay_ms=_number(environ, "OTEL_BSP_SCHEDULE_DELAY", 5000, notes),
            value_limit=int(
                _number(environ, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit, notes)
            ),
            content=capture.strip().lower() in {"true", "span_only", "span_and_event"},
            warnings=tuple(notes),
        )


def _endpoint(environ: Mapping[str, str], notes: list[str]) -> str | None:
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    full = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    if not base and not full:
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol.strip() != "http/protobuf":
        notes.append(f"OTLP protocol {protocol} is not supported; http/protobuf is used")
    return full or f"{base.rstrip('/')}/v1/traces"


def _resource(environ: Mapping[str, str]) -> dict[str, str]:
    found = {"service.name": "surefoot"}
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            found[key.strip()] = unquote(value.strip())
    name = environ.get("OTEL_SERVICE_NAME", "").strip()
    return {**found, "service.name": name} if name else found


def _ratio(environ: Mapping[str, str], notes: list[str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    match sampler.removeprefix("parentbased_"):
        case "" | "always_on":
            return 1.0
        case "always_off":
            return 0.0
        case "traceidratio":
            text = environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
            ratio = _float(text)
            if ratio is not None and 0.0 <= ratio <= 1.0:
                return ratio
            notes.append(f"OTEL_TRACES_SAMPLER_ARG={text} is not between 0 and 1; 1 is used")
            return 1.0
        case _:
            notes.append(f"OTEL_TRACES_SAMPLER={sampler} is not supported; always_on is used")
            return 1.0


def _number(
    environ: Mapping[str, str], name: str, default: float, notes: list[str], least: float = 1
) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    value = _float(text)
    if value is None or value < least:
        notes.append(f"{name}={text} is not a number of at least {least:g}; {default:g} is used")
        return default
    return value


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
