"""Answers that an endpoint should not give, through the whole service: recovered, or ended."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.ground import Ground, standing
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, args, call, calls, tc, text
from tests.scripted.history import Body
from tests.scripted.scripts import results_so_far

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made:
        yield made


def deliveries(ground: Ground, session_id: str) -> list[str]:
    """Return which tools a session has really called."""
    return [d.tool for d in ground.tools.received if d.key.startswith(session_id)]


@pytest.mark.req("TOOL-18", "API-9")
@pytest.mark.case("C013")
async def test_calls_announced_and_none_given(ground: Ground) -> None:
    run = await ground.run(lambda *_: calls(finish="tool_calls"))
    assert (run.session["status"], run.session["stop_reason"]) == ("stopped", "output_invalid")
    assert len(run.requests) <= 3


@pytest.mark.req("TOOL-18", "API-9")
@pytest.mark.case("C026")
@pytest.mark.parametrize("recovers", [True, False])
async def test_an_empty_answer_after_a_result(ground: Ground, *, recovers: bool) -> None:
    asked = 0

    def plan(request: Body, _n: int) -> Answer:
        nonlocal asked
        if not any(m["role"] == "tool" for m in request["messages"]):
            return call("calculate", expression="6 * 7")
        asked += 1
        return text("42") if recovers and asked > 1 else text("", reasoning="Hm.")

    run = await ground.run(plan)
    if recovers:
        assert (run.session["status"], run.session["result"]["text"]) == ("completed", "42")
    else:
        assert run.session["stop_reason"] == "output_invalid"
        assert "42" in run.session["result"]["text"]
    assert len(run.requests) <= 4
    for body in run.requests:
        for message in body["messages"]:
            if message["role"] == "assistant":
                assert message["content"] or message.get("tool_calls")


@pytest.mark.req("TOOL-7", "TOOL-8", "LOOP-5")
@pytest.mark.case("C032")
@pytest.mark.parametrize("learns", [True, False])
async def test_a_tool_that_is_not_there(ground: Ground, *, learns: bool) -> None:
    def plan(request: Body, _n: int) -> Answer:
        if "tools" not in request:
            return text("None of them is there.")
        results = results_so_far(request)
        if len(results) == 1 and learns:
            assert "echo" in results[0]
            return call("echo", call_id="c1", text="hello")
        if len(results) == 2 and learns:
            return text("done")
        return calls(tc(f"c{len(results)}", f"ecko{len(results)}", "{}"))

    run = await ground.run(plan)
    first = run.of("tool.finished")[0]
    assert first["error"]["kind"] == "not_found"
    if learns:
        assert run.session["status"] == "completed"
        assert deliveries(ground, run.id) == ["echo"]
    else:
        assert run.session["stop_reason"] == "consecutive_errors"
        assert len(run.requests) == 4


@pytest.mark.req("TOOL-18", "LOOP-12")
@pytest.mark.case("C012")
async def test_calls_with_the_reason_stop_are_carried_out(ground: Ground) -> None:
    def plan(request: Body, _n: int) -> Answer:
        if results_so_far(request):
            return text("All three were heard.")
        three = [tc(f"c{i}", "echo", args(text=f"word {i}")) for i in range(3)]
        return calls(*three, content="let me look", finish="stop")

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert run.session["result"]["text"] == "All three were heard."
    assert deliveries(ground, run.id) == ["echo"] * 3
    assert len(run.requests) == 2


@pytest.mark.req("TOOL-18", "TOOL-8")
@pytest.mark.case("C004")
async def test_arguments_that_break_off_are_not_carried_out(ground: Ground) -> None:
    half = '{"text": "half a sent'

    def plan(request: Body, _n: int) -> Answer:
        return text("ok") if results_so_far(request) else calls(tc("c1", "echo", half))

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert deliveries(ground, run.id) == []
    (finished,) = run.of("tool.finished")
    assert finished["error"]["kind"] in {"invalid_args", "unreadable_call"}
    assert "JSON" in results_so_far(run.requests[1])[0]
    assert run.of("model.answered")[0]["tool_calls"][0]["raw"] == half


@pytest.mark.req("TOOL-18", "TOOL-10")
@pytest.mark.case("C005")
async def test_a_call_cut_by_the_output_limit_is_not_carried_out(ground: Ground) -> None:
    def plan(request: Body, _n: int) -> Answer:
        if results_so_far(request):
            return text("It was cut.")
        return calls(tc("c1", "pay", '{"amount": 100}'), finish="length")

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert deliveries(ground, run.id) == []
    told = results_so_far(run.requests[1])[0]
    assert "cut" in told or "truncated" in told
    assert len(run.requests) == 2


@pytest.mark.req("LOOP-11", "API-9")
@pytest.mark.case("C118", "C120")
@pytest.mark.parametrize(
    ("raw", "said", "confidence"),
    [
        ('{"text":"a\\ud83c\\u0000","complete":true,"confidence":1}', "a\ufffd\ufffd", 1.0),
        ('{"text":"a","complete":true,"confidence":NaN}', "a", None),
        ('{"text":"a","complete":true,"confidence":1e999}', "a", None),
        ('{"text":"a","complete":true,"confidence":1' + "0" * 400 + "}", "a", None),
        ('{"text":"a","complete":true,"confidence":true}', "a", None),
        ('{"text":"a","complete":true,"confidence":95}', "a", None),
    ],
)
async def test_a_final_answer_with_what_json_should_not_hold(
    ground: Ground, raw: str, said: str, confidence: float | None
) -> None:
    run = await ground.run(lambda *_: calls(tc("c1", "finish", raw)))
    result = run.session["result"]
    assert (run.session["status"], result["text"]) == ("completed", said)
    assert result["confidence"] == confidence


@pytest.mark.req("CTX-7")
@pytest.mark.case("C118")
@pytest.mark.parametrize("raw", ['{"text":"\\udf78"}', '{"text":NaN}', '{"text":1e999}'])
async def test_arguments_of_an_unknown_tool_are_repeated_as_strict_json(
    ground: Ground, raw: str
) -> None:
    answers = [calls(tc("c1", "nobody", raw)), text("done")]
    run = await ground.run(lambda request, _n: answers[len(results_so_far(request))])
    assert (run.session["status"], run.session["result"]["text"]) == ("completed", "done")


@pytest.mark.req("LOOP-15", "TOOL-8", "STATE-10", "CTX-7")
async def test_calls_beyond_the_limit_of_a_step_get_an_error_each(ground: Ground) -> None:
    """The endpoint insists on one result for every call, in order."""

    def plan(request: Body, _n: int) -> Answer:
        if results_so_far(request):
            return text("Five were heard.")
        return calls(*(tc(f"c{i}", "echo", args(text=f"word {i}")) for i in range(8)))

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert deliveries(ground, run.id) == ["echo"] * 5
    finished = {f["call_id"]: f for f in run.of("tool.finished")}
    assert len(finished) == 8
    beyond = [finished[f"t1_c1_{i}"] for i in (6, 7, 8)]
    assert {(f["outcome"], f["executed"], f["error"]["kind"]) for f in beyond} == {
        ("error", False, "rate_limited")
    }
    told = results_so_far(run.requests[1])
    assert [f"word {i}" in told[i] for i in range(8)] == [True] * 5 + [False] * 3


@pytest.mark.req("LOOP-11", "API-10")
async def test_the_final_answer_says_how_it_stands(ground: Ground) -> None:
    """It costs no call of its own and is none; an incomplete one is sent back once."""

    def plan(request: Body, _n: int) -> Answer:
        assert "finish" in [tool["function"]["name"] for tool in request["tools"]]
        again = len(request["messages"]) > 2
        missing = {} if again else {"missing": "the weather"}
        return call("finish", text=f"Try {again}.", complete=again, confidence=0.75, **missing)

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert run.session["result"] == {
        "text": "Try True.",
        "data": None,
        "complete": True,
        "confidence": 0.75,
    }
    assert len(run.requests) == run.session["usage"]["model_calls"] == 2
    assert (run.of("tool.intended"), run.session["usage"]["tool_calls"]) == ([], 0)
    assert "the weather" in run.of("guard.tripped")[0]["detail"]
    plain = await ground.run(lambda *_: text("Plain."))
    assert plain.session["result"] == {
        "text": "Plain.",
        "data": None,
        "complete": None,
        "confidence": None,
    }


@pytest.mark.req("TOOL-16", "TOOL-9", "TOOL-1")
@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1"])
async def test_a_tool_does_not_reach_inside(ground: Ground, host: str) -> None:
    """The operator allowed the loopback here; not the network around it."""
    name = f"inside_{host.replace('.', '_')}"
    tool = {**ground.tools.specs()[0], "name": name, "parameters": {"type": "object"}}
    await ground.client.register({**tool, "http": {"method": "GET", "url": f"http://{host}/x"}})

    def plan(request: Body, _n: int) -> Answer:
        return text("done") if results_so_far(request) else call(name)

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    (finished,) = run.of("tool.finished")
    assert (finished["outcome"], finished["error"]["kind"]) == ("error", "permission")
    assert finished["error"]["sent"] is False
