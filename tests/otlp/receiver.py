"""A collector on loopback: takes OTLP/HTTP protobuf as a real one does and keeps the spans."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Received:
    """One span as the collector got it; ids in hex, times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    kind: int
    failed: bool
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    links: tuple[tuple[str, str], ...] = ()
    events: tuple[tuple[str, Mapping[str, Value]], ...] = ()


@dataclass(slots=True)
class Receiver:
    """What arrived so far; `status` is what the next requests are answered with."""

    endpoint: str = ""
    status: int = 200
    requests: int = 0
    raw: bytearray = field(default_factory=bytearray)
    _spans: list[Received] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def spans(self) -> list[Received]:
        """Return every span, repeated ones too."""
        return list(self._spans)

    def tree(self) -> dict[str, Received]:
        """Return spans by id: what a trace store makes of repeated ones."""
        return {span.span_id: span for span in self._spans}

    async def wait_for(
        self, condition: Callable[[list[Received]], bool], timeout_s: float = 10.0
    ) -> list[Received]:
        """Wait until the spans fulfil a condition."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: condition(self._spans))
        return self.spans()

    async def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> None:
        """Wait until so many exports were tried, whatever they were answered."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: self.requests >= count)

    async def take(self, request: web.Request) -> web.Response:
        """Answer one export."""
        body = await request.read()
        async with self._changed:
            self.requests += 1
            if self.status == 200:
                self.raw.extend(body)
                self._spans.extend(_decode(body))
            self._changed.notify_all()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(status=self.status, body=answer, content_type="application/x-protobuf")


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Run a collector on a free port; `endpoint` is what OTEL_EXPORTER_OTLP_ENDPOINT takes."""
    running = Receiver()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", running.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        running.endpoint = f"http://{host}:{port}"
        yield running
    finally:
        await runner.cleanup()


def _decode(body: bytes) -> list[Received]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        _received(span, _attributes(group.resource.attributes))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _received(span: ProtoSpan, resource: Mapping[str, Value]) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() or None,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        kind=span.kind,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=_attributes(span.attributes),
        resource=resource,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        events=tuple((event.name, _attributes(event.attributes)) for event in span.events),
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case _:
            return None
