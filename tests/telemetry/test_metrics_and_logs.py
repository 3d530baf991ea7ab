"""Metrics and log lines of what was committed, and that no secret or content is in them."""

import io
import json
import logging

import pytest

from app.core.events import Limits
from app.core.faults import Fault, FaultKind
from app.core.state import State
from app.telemetry import names
from app.telemetry.logs import LogConfig, make_logger, route_stdlib
from app.telemetry.masking import MASK, Masker, is_secret_name, mask_fields
from app.telemetry.metrics import OTHER, Bounded, Metrics
from tests.telemetry.journey import (
    SSN,
    START_US,
    TRACE_ID,
    Journey,
    five_and_four,
    made,
    shop_price,
)
from tests.telemetry.rig import Rig


def _samples(metrics: Metrics) -> dict[str, float]:
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.render().decode().splitlines()
        if not line.startswith("#")
    }


@pytest.mark.req("OBS-2", "LOOP-2")
def test_a_session_is_counted() -> None:
    rig = Rig().see(five_and_four().commits)
    found = _samples(rig.metrics)
    assert found['surefoot_transitions_total{from="OBSERVE",to="THINK"}'] == 5
    assert found['surefoot_turns_total{stop_reason="final_answer"}'] == 1
    assert found['surefoot_tool_calls_total{outcome="ok",tool="tool_1"}'] == 1
    labels = '{gen_ai_agent_name="default"}'
    assert found[f"gen_ai_invoke_agent_inference_calls_sum{labels}"] == 5
    assert found[f"gen_ai_invoke_agent_tool_calls_sum{labels}"] == 4
    assert found[f"surefoot_turn_steps_sum{labels}"] == 5
    model = (
        'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-x"'
    )
    chat = f'{{error_type="",{model}}}'
    assert found[f"gen_ai_client_inference_duration_seconds_count{chat}"] == 5
    assert found[f"gen_ai_client_operation_duration_seconds_sum{chat}"] == pytest.approx(1.5)
    usage = f'{{{model},gen_ai_token_type="input"}}'
    assert found[f"gen_ai_client_token_usage_sum{usage}"] == 500


@pytest.mark.req("OBS-2")
def test_failures_and_guards_are_counted() -> None:
    journey = Journey(limits=Limits(max_steps=1))
    journey.model_fails()
    journey.now_us += 2_000_000
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    journey.tool_fails(call, FaultKind.INTERNAL)
    found = _samples(Rig().see(journey.commits).metrics)
    assert found['surefoot_model_failures_total{kind="unavailable",model="gpt-x"}'] == 1
    assert found['surefoot_tool_calls_total{outcome="error",tool="a"}'] == 1
    assert found['surefoot_guards_tripped_total{guard="max_steps"}'] == 1


def test_every_metric_is_in_the_table() -> None:
    metrics = Rig().see(shop_price().commits).metrics
    own = {m.name for m in metrics.registry.collect() if m.name.startswith(("gen_ai", "surefoot"))}
    assert own == set(names.METRICS)


def test_gauges_and_counters_of_the_process() -> None:
    metrics = Rig().metrics
    metrics.loop_lag(0.25)
    metrics.sessions_owned(7)
    metrics.redis_up(True)  # noqa: FBT003 - a gauge takes a number
    metrics.spans_dropped(3, "queue_full")
    found = _samples(metrics)
    assert found["surefoot_loop_lag_seconds"] == 0.25
    assert found["surefoot_sessions_owned"] == 7
    assert found["surefoot_redis_up"] == 1
    assert found['surefoot_spans_dropped_total{reason="queue_full"}'] == 3


def test_labels_from_users_are_bounded() -> None:
    bounded = Bounded(2)
    assert [bounded(v) for v in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]


def test_tool_names_that_a_model_made_up_share_one_label() -> None:
    journey = Journey()
    fault = Fault.of(FaultKind.NOT_FOUND, "There is no such tool.")
    journey.answer(calls=[made(0, "made_up_42", 1, fault=fault, arguments=None)])
    text = Rig().see(journey.commits).text()
    assert "made_up_42" not in text
    assert 'tool="unknown"' in text


@pytest.mark.req("OBS-3", "LOOP-2")
def test_each_transition_is_one_line_with_trace_and_session() -> None:
    journey = shop_price()
    moves = [e for c in journey.commits for e in c.events if e.body.TYPE == "phase.entered"]
    lines = Rig().see(journey.commits).lines()
    told = [line for line in lines if line["event"] == "phase.entered"]
    assert [line["seq"] for line in told] == [event.seq for event in moves]
    assert {(line["session_id"], line["trace_id"]) for line in lines} == {("ses_1", TRACE_ID)}
    assert told[0]["from"] is None
    assert told[0]["to"] == "OBSERVE"
    assert str(told[0]["ts"]).startswith("2026-09-21T")
    assert {line["level"] for line in lines} == {"info"}


def test_a_level_that_is_off_writes_nothing() -> None:
    assert Rig(level="warning").see(shop_price().commits).lines() == []
    journey = Journey()
    journey.model_fails()
    (line,) = Rig(level="warning").see(journey.commits).lines()
    assert (line["event"], line["kind"]) == ("model.failed", "unavailable")


def _eventful() -> Journey:
    journey = Journey()
    journey.model_fails()
    journey.now_us += 2_000_000
    call, second = made(0, "a", 1), made(1, "b", 1)
    journey.answer(f"Thinking about {SSN} sk-canary-1", calls=[call, second])
    journey.result(call)
    journey.tool_fails(second, FaultKind.INTERNAL)
    journey.answer(f"It is {SSN} sk-canary-1")
    return journey


@pytest.mark.case("C145", "C146")
@pytest.mark.req("STATE-5")
def test_no_content_and_no_key_is_in_spans_lines_or_metrics() -> None:
    journey = _eventful()
    assert SSN in repr(journey.commits), "the journal itself holds the truth"
    rig = Rig(level="debug").see(journey.commits)
    seen = repr(rig.kept.spans) + repr(rig.lines()) + rig.text()
    for canary in (SSN, "000-00", "sk-canary-1"):
        assert canary not in seen


@pytest.mark.case("C146")
@pytest.mark.parametrize("form", ["{}", "Authorization: Bearer {}", "https://x/?k={}", "a\n{}"])
def test_a_configured_secret_is_masked_wherever_it_stands(form: str) -> None:
    secret = 'sk-"canary"/1 ü'
    rig = Rig(secrets=(secret, "abc"))
    rig.observer.log("provider.failed", detail=form.format(secret), nested={"a": [secret]})
    rig.observer.log("provider.failed", level="error", api_key="other", headers={"X-Api-Key": "v"})
    text = rig.stream.getvalue().decode()
    assert "canary" not in text
    first, second = (json.loads(line) for line in text.splitlines())
    assert first["nested"] == {"a": [MASK]}
    assert second["api_key"] == MASK
    assert second["headers"] == {"X-Api-Key": MASK}
    assert second["level"] == "error"


def test_names_that_are_secret_and_names_that_are_not() -> None:
    for name in ("Authorization", "api_key", "apikey", "client_secret", "password", "set-cookie"):
        assert is_secret_name(name)
    for name in ("input_tokens", "session_id", "monkey", "token_budget", "key_id"):
        assert not is_secret_name(name)
    assert mask_fields({"a": ({"token": "x"},)}) == {"a": [{"token": MASK}]}


def test_credentials_are_masked_by_their_shape_too() -> None:
    masker = Masker()
    assert masker.text("Bearer abcdefgh123 rest") == f"Bearer {MASK} rest"
    assert masker.text("postgresql://bob:pw@db/x") == f"postgresql://bob:{MASK}@db/x"


def test_a_line_that_json_cannot_hold_is_written_all_the_same() -> None:
    rig = Rig()
    rig.observer.log("odd", text="\ud800", number=float("nan"), thing=object(), raw=b"\xff")
    (line,) = rig.lines()
    assert line["event"] == "odd"


def test_the_console_form() -> None:
    stream = io.BytesIO()
    config = LogConfig(lambda: START_US, format="console", secrets=("sk-canary-1",))
    make_logger(config, stream).info("hello", who="sk-canary-1")
    text = stream.getvalue().decode()
    assert "hello" in text
    assert "canary" not in text


@pytest.mark.case("C146")
def test_lines_of_libraries_go_the_same_way() -> None:
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    stream = io.BytesIO()
    try:
        route_stdlib(LogConfig(lambda: START_US, level="debug", secrets=("sk-canary-1",)), stream)
        logging.getLogger("uvicorn.error").warning("key %s", "sk-canary-1")
        logging.getLogger("httpx2").debug("headers %s", "hidden-header")
        try:
            int("sk-canary-1")
        except ValueError:
            logging.getLogger("asyncio").exception("it broke")
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["logger"], first["level"]) == ("uvicorn.error", "warning")
    assert "ValueError" in second["exception"]
    assert b"canary" not in stream.getvalue()
    assert b"hidden-header" not in stream.getvalue()


def test_telemetry_that_breaks_does_not_break_the_session() -> None:
    rig = Rig()
    journey = shop_price()
    commit = journey.commits[1]
    broken: State = object()  # type: ignore[assignment] # what must not happen
    rig.observer.committed(broken, commit.events, commit.after)
    rig.observer.replayed(broken, commit.events, commit.after)
    assert _samples(rig.metrics)["surefoot_telemetry_errors_total"] == 2
    assert [line["event"] for line in rig.lines()] == ["telemetry.failed"] * 2


def test_the_link_to_a_trace() -> None:
    assert Rig().observer.trace_url("abc") == "http://127.0.0.1:16686/trace/abc"
