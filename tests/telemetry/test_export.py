"""Spans out of the process: to a real collector, past a dead one, and not at all without one."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.telemetry import names
from app.telemetry.otel import OtelConfig
from app.telemetry.project import SpanRecord
from app.telemetry.sink import SpanSink, open_sink
from tests.otlp.receiver import receiver
from tests.telemetry.journey import ROOT_ID, SSN, TRACE_ID, five_and_four, shop_price
from tests.telemetry.rig import Rig, assert_one_tree, spans_of

FAST = {"OTEL_BSP_SCHEDULE_DELAY": "20"}


class Dropped:
    """Counts what was lost."""

    def __init__(self) -> None:
        """Start from none."""
        self.by_reason: dict[str, int] = {}

    def __call__(self, count: int, reason: str) -> None:
        """Count."""
        self.by_reason[reason] = self.by_reason.get(reason, 0) + count


def _sink(dropped: Dropped | None = None, **environ: str) -> SpanSink:
    sink = open_sink(OtelConfig.from_environ({**FAST, **environ}), dropped or Dropped())
    assert sink is not None
    return sink


def _span(number: int = 1, **attributes: str) -> SpanRecord:
    return SpanRecord("think", TRACE_ID, f"{number:016x}", ROOT_ID, 1, 2, dict(attributes))


@contextmanager
def _black_hole() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def _refusing() -> Iterator[str]:
    """An address where nobody listens; the port stays bound, so that nobody else takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.req("API-6", "OBS-1")
async def test_a_collector_gets_the_tree() -> None:
    async with receiver() as collector:
        sink = _sink(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test,service.name=x",
            OTEL_SERVICE_NAME="sure",
        )
        journey = shop_price()
        Rig(sink=sink).see(journey.commits)
        got = await collector.wait_for(lambda spans: len(spans) >= 11)
        sink.close(3.0)
    made = {span.span_id: span for span in spans_of(journey)}
    assert len(got) == 11
    for span in got:
        record = made[span.span_id]
        assert (span.name, span.trace_id, span.parent_id) == (
            record.name,
            TRACE_ID,
            record.parent_id,
        )
        assert (span.start_ns, span.end_ns) == (record.start_us * 1000, record.end_us * 1000)
        assert span.attributes == record.attributes
        assert span.resource["service.name"] == "sure"
        assert span.resource["deployment.environment.name"] == "test"
    assert {span.kind for span in got if span.name.startswith("chat")} == {3}, "CLIENT"
    assert SSN.encode() not in bytes(collector.raw)


@pytest.mark.case("C139")
async def test_two_workers_spans_make_one_tree_at_the_collector() -> None:
    journey = five_and_four()
    async with receiver() as collector:
        sinks = [_sink(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) for _ in range(2)]
        first, second = (Rig(sink=sink) for sink in sinks)
        first.see(journey.commits[:5])
        for commit in journey.commits[1:5]:
            second.observer.replayed(commit.before, commit.events, commit.after)
        second.see(journey.commits[5:])
        await collector.wait_for(lambda spans: len({s.span_id for s in spans}) == 29)
        for sink in sinks:
            sink.close(3.0)
    tree = collector.tree()
    assert {s.parent_id for s in tree.values()} - {None} <= set(tree)
    assert_one_tree(spans_of(journey))


@pytest.mark.case("C143")
async def test_a_huge_attribute_is_cut_at_a_character_border() -> None:
    async with receiver() as collector:
        sink = _sink(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        sink.put(_span(1, a="🎉" * 10_000_000))
        sink.put(_span(2, a="ok\ud800"))
        got = await collector.wait_for(lambda spans: len(spans) == 2)
        sink.close(3.0)
    values = sorted(str(span.attributes["a"]) for span in got)
    assert values == ["ok?", "🎉" * 1024]


async def test_links_events_and_failures_arrive() -> None:
    async with receiver() as collector:
        sink = _sink(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        link = f"00-{'a' * 32}-{'b' * 16}-01"
        record = SpanRecord(
            "x", TRACE_ID, ROOT_ID, None, 1, 2, {}, failed=True, links=(link, "nonsense", "00-0-0")
        )
        sink.put(record)
        (got,) = await collector.wait_for(lambda spans: len(spans) == 1)
        sink.close(3.0)
    assert got.failed
    assert got.links == (("a" * 32, "b" * 16),)
    assert got.parent_id is None


@pytest.mark.case("C141", "C142")
@pytest.mark.parametrize("dead", [_refusing, _black_hole])
def test_a_dead_collector_costs_nothing_and_what_is_lost_is_counted(dead: object) -> None:
    dropped = Dropped()
    commits = five_and_four().commits
    assert callable(dead)
    with dead() as endpoint:
        sink = _sink(dropped, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_BSP_MAX_QUEUE_SIZE="100")
        rig = Rig(sink=sink, level="error")
        took: list[float] = []
        for _ in range(100):
            begun = time.perf_counter()
            rig.see(commits)
            took.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        sink.close(1.0)
        closing = time.perf_counter() - begun
    # Any of them may have lost the processor to others; waiting would be seen in most.
    assert sorted(took)[50] < 0.5, "nobody waited for the collector"
    assert closing < 5.0
    assert sum(dropped.by_reason.values()) >= 2900 - 200
    assert dropped.by_reason["queue_full"] > 2000


@pytest.mark.case("C142")
def test_a_process_with_a_black_holed_collector_exits_in_time() -> None:
    program = (
        "import sys, time\n"
        "from app.telemetry.otel import OtelConfig\n"
        "from app.telemetry.sink import open_sink\n"
        "from tests.telemetry.test_export import _span\n"
        "sink = open_sink(OtelConfig.from_environ({'OTEL_EXPORTER_OTLP_ENDPOINT': sys.argv[1],"
        " 'OTEL_BSP_SCHEDULE_DELAY': '10'}), lambda count, reason: None)\n"
        "for number in range(1, 600): sink.put(_span(number))\n"
        "print(time.time())\n"
        "sink.close(1.0)\n"
    )
    with _black_hole() as endpoint:
        command = [sys.executable, "-c", program, endpoint]
        ran = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
        assert time.time() - float(ran.stdout) < 6.0, "from the wish to close to the exit"


async def test_failing_exports_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    dropped = Dropped()
    async with receiver() as collector:
        collector.status = 400
        sink = _sink(dropped, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        for number in range(1, 6):
            sink.put(_span(number))
            await collector.wait_for_requests(number)
        sink.close(3.0)
    assert dropped.by_reason == {"export_failed": 5}
    assert len(caplog.records) <= 1


def test_spans_after_the_end_are_counted_as_lost() -> None:
    dropped = Dropped()
    with _refusing() as endpoint:
        sink = _sink(dropped, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        sink.close(1.0)
        sink.close(1.0)
        sink.put(_span())
    assert dropped.by_reason == {"shut_down": 1}


def test_without_a_collector_the_sdk_is_not_even_imported() -> None:
    program = (
        "import sys\n"
        "from app.telemetry.otel import OtelConfig\n"
        "from app.telemetry.sink import open_sink\n"
        "import app.telemetry.observer\n"
        "assert open_sink(OtelConfig.from_environ({}), lambda count, reason: None) is None\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert threading.active_count() >= 1


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://c/x"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_the_endpoint(environ: dict[str, str], endpoint: str | None) -> None:
    assert OtelConfig.from_environ(environ).endpoint == endpoint


@pytest.mark.parametrize(
    ("sampler", "argument", "low", "high"),
    [
        ("", "", True, True),
        ("always_on", "", True, True),
        ("parentbased_always_off", "", False, False),
        ("traceidratio", "0.5", True, False),
        ("parentbased_traceidratio", "0.25", True, False),
        ("traceidratio", "nonsense", True, True),
        ("jaeger_remote", "", True, True),
    ],
)
def test_the_sampler(sampler: str, argument: str, *, low: bool, high: bool) -> None:
    config = OtelConfig.from_environ(
        {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    )
    assert config.sample("f" * 16 + "0" * 16) is low
    assert config.sample("0" * 16 + "f" * 16) is high
    assert bool(config.warnings) is (sampler == "jaeger_remote" or argument == "nonsense")


def test_what_cannot_be_read_is_told_and_replaced() -> None:
    config = OtelConfig.from_environ(
        {
            "OTEL_BSP_MAX_QUEUE_SIZE": "0",
            "OTEL_BSP_SCHEDULE_DELAY": "soon",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        }
    )
    assert (config.max_queue, config.delay_ms) == (2048, 5000)
    assert len(config.warnings) == 3
    assert not OtelConfig.from_environ({"OTEL_SDK_DISABLED": "true"}).sample(TRACE_ID)


def test_a_batch_is_never_larger_than_the_queue() -> None:
    config = OtelConfig.from_environ({"OTEL_BSP_MAX_QUEUE_SIZE": "10"})
    assert config.max_batch == 10
    assert names.SCOPE == "surefoot"
