"""Each guard stops a runaway over HTTP: its own reason, the best result so far, the whole trace."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.ground import Ground, Run, standing
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, args, call, calls, stream, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Delay
from tests.scripted.scripts import Script, results_so_far

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEST = "This is what I have so far."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made:
        yield made


def is_closing(request: Body) -> bool:
    return "tools" not in request


def until_closed(step: Script) -> Script:
    """Go on for ever by `step`; a closing call gets the best so far."""
    return lambda request, n: text(BEST) if is_closing(request) else step(request, n)


def stopped_by(run: Run, reason: str, *, text: str | None = BEST) -> None:
    """The turn ended by this guard, with a result, and the trace has no hole."""
    assert (run.session["status"], run.session["stop_reason"]) == ("stopped", reason)
    assert run.session["result"]["text"], "the result so far"
    if text is not None:
        assert run.session["result"]["text"] == text
    assert run.session["result"]["complete"] is False
    assert [e["seq"] for e in run.events] == list(range(1, run.session["last_seq"] + 1))
    assert run.events[-1]["type"] == "turn.ended"
    assert run.of("turn.ended")[-1]["stop_reason"] == reason
    assert run.of("guard.tripped")[-1]["guard"] == reason
    intended = {d["call_id"] for d in run.of("tool.intended")}
    assert intended <= {d["call_id"] for d in run.of("tool.finished")}


@until_closed
def never_ending(request: Body, _n: int) -> Answer:
    done = len(results_so_far(request))
    return call("calculate", call_id=f"c{done}", expression=f"{done} * {done} + 7")


@pytest.mark.req("LOOP-3", "LOOP-10", "LOOP-13", "API-9", "STATE-10")
async def test_never_ending_calls(ground: Ground) -> None:
    run = await ground.run(never_ending, limits={"max_steps": 4})
    stopped_by(run, "max_steps")
    assert len(run.requests) == 5
    assert run.session["usage"]["tool_calls"] == 4
    refused = await ground.client.post(f"/v1/sessions/{run.id}/resume", {}, expect=409)
    assert refused["type"] == "/problems/limits-not-raised"
    resumed = await ground.resume(run.id, max_steps=6)
    stopped_by(resumed, "max_steps")
    assert resumed.session["turn"] == 2
    assert resumed.of("turn.started")[1]["continues"] == 1
    assert resumed.session["usage"]["tool_calls"] == 6
    assert sum(m["role"] == "tool" for m in resumed.requests[-1]["messages"]) == 6


@pytest.mark.req("LOOP-6", "API-9")
async def test_a_then_b_then_a_then_b(ground: Ground) -> None:
    @until_closed
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        return call("echo", call_id=f"c{done}", text="AB"[done % 2] * 20)

    run = await ground.run(plan)
    stopped_by(run, "loop_detected")
    assert len(run.requests) == 4 + 1  # by the period: by frequency it would be one step more


@pytest.mark.req("LOOP-6", "LOOP-7", "API-9")
async def test_the_same_arguments_in_another_order(ground: Ground) -> None:
    @until_closed
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        written = (
            '{"city": "Köln", "date": "2026-01-01"}',
            '{"date":"2026-01-01",  "city":"Ko\\u0308ln"}',
            '{ "date" : "2026-01-01", "city" : "K\\u00f6ln" }',
        )
        return calls(tc(f"c{done}", "get_weather", written[done % 3]))

    before = len(ground.tools.received)
    run = await ground.run(plan)
    stopped_by(run, "repeated_action")
    assert len(ground.tools.received) - before == 1
    second = [m for m in run.requests[2]["messages"] if m["role"] == "tool"][-1]["content"]
    assert "31" in second
    assert "change your strategy" in second


@pytest.mark.req("LOOP-7", "LOOP-13", "API-9")
async def test_the_same_action_again_and_again(ground: Ground) -> None:
    @until_closed
    def plan(request: Body, _n: int) -> Answer:
        return call("echo", call_id=f"c{len(results_so_far(request))}", text="the very same words")

    run = await ground.run(plan)
    stopped_by(run, "repeated_action")
    assert run.session["usage"]["tool_calls"] == 1
    resumed = await ground.resume(run.id, max_repeat=9)
    stopped_by(resumed, "loop_detected")


@pytest.mark.req("LOOP-7", "API-9")
async def test_identical_results_of_different_calls(ground: Ground) -> None:
    @until_closed
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        return call("get_weather", call_id=f"c{done}", city="Rome", date=f"2026-01-{done + 1:02}")

    run = await ground.run(plan)
    stopped_by(run, "repeated_result")
    assert run.session["usage"]["tool_calls"] == 2


@pytest.mark.req("LOOP-5", "LOOP-8", "LOOP-16", "LOOP-13", "API-9", "TOOL-8")
async def test_three_errors_running(ground: Ground) -> None:
    @until_closed
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        if done == 0:
            return call("calculate", call_id="c0", expression="2 + 2")
        return calls(tc(f"c{done}", "calculate", args(expression=f"{done} +")))

    run = await ground.run(plan)
    stopped_by(run, "consecutive_errors")
    assert [d["outcome"] for d in run.of("tool.finished")] == ["ok", "error", "error", "error"]
    for failed in run.of("tool.finished")[1:]:
        assert failed["error"]["kind"]
        assert "Traceback" not in failed["error"]["message"]
    resumed = await ground.resume(run.id, max_consecutive_errors=4)
    assert resumed.session["stop_reason"] == "consecutive_errors"


@pytest.mark.req("LOOP-4", "LOOP-13", "API-9")
@pytest.mark.case("C159")
async def test_the_token_budget_is_looked_at_before_the_spend(ground: Ground) -> None:
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        usage = {"prompt_tokens": 930, "completion_tokens": 20, "total_tokens": 950}
        return calls(tc(f"c{done}", "calculate", args(expression=f"{done} * 3 + 111")), usage=usage)

    run = await ground.run(plan, limits={"token_budget": 1000})
    stopped_by(run, "token_budget", text=None)
    assert len(run.requests) == 1
    assert "111" in run.session["result"]["text"]
    assert run.session["usage"]["input_tokens"] == 930
    resumed = await ground.resume(run.id, token_budget=4000)
    stopped_by(resumed, "token_budget", text=None)
    assert len(resumed.requests) > 1


@pytest.mark.req("LOOP-4", "CTX-1")
@pytest.mark.case("C019")
async def test_a_stream_without_usage_is_estimated_and_counts(ground: Ground) -> None:
    words = "word " * 400

    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        step = tc(f"c{done}", "calculate", args(expression=f"{done} + 1"))
        return calls(step, content=words, usage=None)

    run = await ground.run(plan, limits={"token_budget": 50})
    stopped_by(run, "token_budget", text=None)
    assert len(run.requests) == 1
    usage = run.of("model.answered")[0]["usage"]
    assert usage["estimated"] is True
    assert usage["output_tokens"] >= 400
    assert usage["input_tokens"] > 0


@pytest.mark.req("LOOP-9", "LOOP-13", "API-9", "STATE-10")
async def test_the_total_timeout_cuts_a_hanging_tool(ground: Ground) -> None:
    def plan(request: Body, _n: int) -> Answer:
        done = sum(m["role"] == "tool" for m in request["messages"])  # before the resume too
        if done == 0:
            return call("calculate", call_id="c0", expression="40 + 2")
        return call("slow", call_id="c1", sec=60) if done == 1 else text("It never came.")

    began = time.monotonic()
    run = await ground.run(plan, limits={"total_timeout_s": 1.0, "tool_timeout_s": 60})
    assert time.monotonic() - began < 20  # the tool hangs for 60
    stopped_by(run, "total_timeout", text=None)
    assert "42" in run.session["result"]["text"]
    assert run.of("tool.finished")[-1]["outcome"] in {"cancelled", "error"}
    assert len(run.requests) == 2
    resumed = await ground.resume(run.id, total_timeout_s=30)
    assert resumed.session["status"] == "completed"
    assert resumed.session["result"]["text"] == "It never came."


@pytest.mark.req("LOOP-9")
@pytest.mark.case("C077")
async def test_keep_alives_of_the_model_do_not_hold_a_timeout_off(ground: Ground) -> None:
    pings = [item for _ in range(400) for item in (b": ping\n\n", Delay(0.1))]
    began = time.monotonic()
    run = await ground.run(lambda *_: stream(*pings), limits={"total_timeout_s": 1.5})
    assert time.monotonic() - began < 20  # the pings go on for 40
    assert (run.session["status"], run.session["stop_reason"]) == ("stopped", "total_timeout")
    assert len(run.requests) == 1


@pytest.mark.req("LOOP-9", "TOOL-8")
async def test_the_tool_timeout_is_an_error_to_the_model(ground: Ground) -> None:
    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        return call("slow", sec=60) if done == 0 else text("It took too long.")

    run = await ground.run(plan, limits={"tool_timeout_s": 0.5})
    assert run.session["status"] == "completed"
    (finished,) = run.of("tool.finished")
    assert finished["error"]["kind"] == "timeout"
