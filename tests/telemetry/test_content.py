"""Content in spans: only when asked for, and then masked and small (C143, C145)."""

import io
import json
import time
from collections.abc import Callable

import pytest

from app.core.inputs import CancelAsked
from app.telemetry import names
from app.telemetry.content import Content
from app.telemetry.logs import LogConfig
from app.telemetry.masking import Masker
from app.telemetry.opening import TelemetryConfig, open_observer
from app.telemetry.project import Projection, SpanRecord
from tests.otlp.receiver import receiver
from tests.telemetry.journey import SSN, START_US, Journey, made
from tests.telemetry.rig import Rig


def _sensitive(tool: str) -> tuple[str, ...] | None:
    return {"pay": ("card",), "echo": ()}.get(tool)


def _spans(journey: Journey, limit: int = 1024) -> dict[str, SpanRecord]:
    content = Content(Masker(("sk-canary-1",)).text, limit, _sensitive)
    rig = Rig(projection=Projection(content=content)).see(journey.commits)
    return {span.name: span for span in rig.kept.spans}


def _paid(tool: str = "pay", output: object = None) -> Journey:
    journey = Journey()
    arguments: dict[str, object] = {"card": "4111-1111", "pin": 1, "note": SSN, "api_key": "zzz"}
    call = made(0, tool, 1, arguments=arguments)
    journey.answer(f"Paying with 4111-1111 and sk-canary-1 for {SSN}", calls=[call])
    journey.result(call, output or {"said": f"4111-1111 sk-canary-1 {SSN}"})
    journey.answer(f"Paid. {SSN}")
    return journey


@pytest.mark.case("C145", "C146")
@pytest.mark.req("STATE-5")
def test_content_that_was_asked_for_is_there_and_masked() -> None:
    spans = _spans(_paid())
    tool, root = spans["execute_tool pay"], spans["invoke_agent default"]
    assert json.loads(str(tool.attributes[names.TOOL_ARGUMENTS])) == {
        "card": "***",
        "pin": 1,
        "note": SSN,
        "api_key": "***",
    }
    assert SSN in str(tool.attributes[names.TOOL_RESULT])
    assert SSN in str(root.attributes[names.INPUT_MESSAGES])
    assert SSN in str(root.attributes[names.OUTPUT_MESSAGES])
    assert SSN in str(spans["chat gpt-x"].attributes[names.OUTPUT_MESSAGES])
    assert "4111" not in repr(spans)
    assert "canary" not in repr(spans)
    asked_for = {key for s in spans.values() for key in s.attributes} & names.CONTENT_ATTRIBUTES
    assert asked_for == names.CONTENT_ATTRIBUTES


@pytest.mark.parametrize("wrap", [str, lambda text: {"said": text}])
def test_a_sensitive_value_is_masked_in_plain_text_and_in_json(
    wrap: Callable[[str], object],
) -> None:
    journey = Journey()
    call = made(0, "pay", 1, arguments={"card": 'a "quoted" card'})
    journey.answer(calls=[call])
    journey.result(call, wrap('charged a "quoted" card'))
    assert "quoted" not in str(_spans(journey)["execute_tool pay"].attributes)


def test_a_tool_whose_parameters_are_not_known_is_not_told_about() -> None:
    spans = _spans(_paid("other"))
    assert names.TOOL_ARGUMENTS not in spans["execute_tool other"].attributes
    assert names.TOOL_RESULT not in spans["execute_tool other"].attributes


@pytest.mark.case("C143")
@pytest.mark.parametrize(
    "output",
    [
        "🎉" * 10_000_000,
        {"a": ["x" * 10_000_000] * 3},
        {"deep": [[[[[[[[1]]]]]]]]},
        list(range(10**6)),
    ],
)
def test_huge_output_is_cut_before_it_costs_anything(output: object) -> None:
    journey = _paid("echo", output)
    begun = time.process_time()
    span = _spans(journey)["execute_tool echo"]
    assert time.process_time() - begun < 0.2
    assert len(str(span.attributes[names.TOOL_RESULT])) < 20_000


def test_a_call_without_a_result_tells_its_arguments() -> None:
    journey = Journey()
    journey.answer(calls=[made(0, "echo", 1)])
    journey.give(CancelAsked(journey.tick()))
    span = _spans(journey)["execute_tool echo"]
    assert "was interrupted" in str(span.attributes[names.TOOL_RESULT])


@pytest.mark.case("C145")
@pytest.mark.parametrize("asked", ["true", ""])
async def test_the_standard_variable_turns_it_on(asked: str) -> None:
    stream = io.BytesIO()
    async with receiver() as collector:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": asked,
            "OTEL_TRACES_SAMPLER": "nonsense",
        }
        config = TelemetryConfig(
            environ, LogConfig(lambda: START_US, level="warning"), sensitive=_sensitive
        )
        observer = open_observer(config, stream)
        for commit in _paid().commits:
            observer.committed(commit.before, commit.events, commit.after)
        got = await collector.wait_for(lambda spans: len(spans) == 11)
        observer.close()
    assert (SSN.encode() in bytes(collector.raw)) is bool(asked)
    assert all(len(str(v)) <= 1024 for span in got for v in span.attributes.values())
    assert json.loads(stream.getvalue())["event"] == "telemetry.setting_ignored"


def test_an_observer_without_a_collector() -> None:
    config = TelemetryConfig({}, LogConfig(lambda: START_US, level="error"))
    observer = open_observer(config, io.BytesIO())
    journey = _paid()
    for commit in journey.commits:
        observer.committed(commit.before, commit.events, commit.after)
        observer.replayed(commit.before, commit.events, commit.after)
    observer.close()
    assert observer.trace_url("x") is None
    assert observer.sample("f" * 32)
    assert b'surefoot_turns_total{stop_reason="final_answer"} 1.0' in observer.metrics.render()
