"""One attempt on a real socket: connections, deadlines, cancelling, and what is sent."""

import asyncio
from collections.abc import Iterator

import pytest

from app.core.faults import FaultKind
from app.providers import reading
from app.runtime.errors import ModelFailure
from tests.providers.support import KEY, TRACEPARENT, models, refusal, request
from tests.scripted.answers import Item, cut, error, hang, held, raw, stream, text
from tests.scripted.http import Delay, End, Hold
from tests.scripted.model import ScriptedModel

REFUSED_PORT = "http://127.0.0.1:1/v1"


async def test_a_request_says_who_asks_and_in_which_trace() -> None:
    async with ScriptedModel([text("ok")]) as endpoint:
        port = models(endpoint.base_url + "/")
        await port.answer(request(), None)
        await port.close()
    headers = endpoint.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["traceparent"] == TRACEPARENT
    assert endpoint.bodies[0]["stream"] is True
    assert endpoint.bodies[0]["stream_options"] == {"include_usage": True}


async def test_one_connection_serves_one_call_after_the_other() -> None:
    answers = [text("a"), text("b", as_json=True), error(429, "slow down"), text("c")]
    async with ScriptedModel(answers) as endpoint:
        port = models(endpoint.base_url)
        await port.answer(request(), None)
        await port.answer(request(), None)
        with pytest.raises(ModelFailure):
            await port.answer(request(), None)
        await port.answer(request(), None)
        assert endpoint.connections == 1
        await port.close()


@pytest.mark.case("C030")
@pytest.mark.parametrize("clean", [True, False])
async def test_an_answer_without_its_end_is_a_fault(*, clean: bool) -> None:
    deltas: list[Item] = [{"content": piece} for piece in "abc"]
    answer = stream(*deltas, finish=None, done=False) if clean else cut(*deltas)
    failure = await refusal(answer)
    assert (failure.fault.kind, failure.fault.sent) == (FaultKind.UNAVAILABLE, True)


async def test_a_connection_closed_before_any_answer_is_a_fault() -> None:
    failure = await refusal(raw(End.CUT))
    assert (failure.fault.kind, failure.fault.sent) == (FaultKind.UNAVAILABLE, True)


@pytest.mark.parametrize("base_url", [REFUSED_PORT, "http://no-such-host.invalid/v1"])
async def test_who_cannot_be_reached_got_nothing(base_url: str) -> None:
    port = models(base_url)
    with pytest.raises(ModelFailure) as caught:
        await port.answer(request(), None)
    await port.close()
    fault = caught.value.fault
    assert (fault.kind, fault.sent) == (FaultKind.UNAVAILABLE, False)


@pytest.mark.case("C077")
async def test_comments_do_not_keep_an_attempt_alive() -> None:
    def pings() -> Iterator[Item]:
        while True:
            yield b": ping\n\n"
            yield Delay(0.02)

    class Endless:
        def __iter__(self) -> Iterator[Item]:
            return pings()

    loop = asyncio.get_running_loop()
    began = loop.time()
    endless = stream(*(item for item, _ in zip(Endless(), range(2000), strict=False)))
    failure = await refusal(endless, asked=request(deadline_s=0.3))
    assert failure.fault.kind is FaultKind.TIMEOUT
    assert 0.3 <= loop.time() - began < 10  # the pings go on for 40


async def test_an_endpoint_that_never_answers_is_a_timeout() -> None:
    failure = await refusal(hang(), asked=request(deadline_s=0.05))
    assert failure.fault.kind is FaultKind.TIMEOUT


@pytest.mark.parametrize("streaming", [True, False])
async def test_cancelling_closes_the_connection_at_once(*, streaming: bool) -> None:
    hold, first = Hold(), asyncio.Event()
    answer = stream({"content": "a"}, hold) if streaming else held(hold, text("a"))
    async with ScriptedModel([answer]) as endpoint:
        port = models(endpoint.base_url)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            call = group.create_task(port.answer(request(), lambda _: first.set()))
            await (first.wait() if streaming else hold.reached())
            call.cancel()
            await endpoint.dropped()
        assert call.cancelled()
        await port.close()


@pytest.mark.case("C041")
async def test_optional_fields_are_left_out_once_they_were_refused() -> None:
    answers = [
        error(400, "Unknown parameter: 'stream_options'."),
        error(422, "parallel_tool_calls: extra inputs are not permitted"),
        text("first"),
        text("second"),
    ]
    async with ScriptedModel(answers) as endpoint:
        port = models(endpoint.base_url, parallel_tool_calls=False, temperature=0)
        first, second = [await port.answer(request(), None) for _ in range(2)]
        await port.close()
    assert (first.text, first.dropped) == ("first", ("stream_options", "parallel_tool_calls"))
    assert (second.text, second.dropped) == ("second", ())
    dropped = {"stream_options", "parallel_tool_calls"}
    sent = [dropped & set(body) for body in endpoint.bodies]
    assert sent == [dropped, {"parallel_tool_calls"}, set(), set()]
    assert all(body["temperature"] == 0 for body in endpoint.bodies)


@pytest.mark.case("C041")
async def test_calls_that_are_refused_at_the_same_time_all_leave_the_field_out() -> None:
    """What one of them has learned meanwhile is no reason to give the others up."""
    hold, refused = Hold(), error(400, "Unknown parameter: 'stream_options'.")
    async with ScriptedModel([held(hold, refused)] * 3 + [text("ok")] * 3) as endpoint:
        port = models(endpoint.base_url)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = [group.create_task(port.answer(request(), None)) for _ in range(3)]
            await endpoint.asked(3)
            hold.release()
        await port.close()
    assert [task.result().text for task in running] == ["ok"] * 3
    assert all("stream_options" not in body for body in endpoint.bodies[3:])


@pytest.mark.case("C041", "C029")
@pytest.mark.parametrize("named", ["tools", "temperature", "stream_options"])
async def test_a_field_that_cannot_be_left_out_is_a_fault(named: str) -> None:
    """One request each: `tools` is needed, `temperature` was not sent; a repeated refusal ends."""
    refused = error(400, f"{named} is not supported")
    answers = [refused] * (2 if named == "stream_options" else 1)
    failure = await refusal(*answers)
    assert failure.fault.kind is FaultKind.REFUSED_REQUEST
    assert f"{named} is not supported" in failure.fault.message


@pytest.mark.parametrize("as_json", [True, False])
async def test_an_answer_has_a_largest_size(
    *, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 10_000)
    failure = await refusal(text("x" * 20_000, as_json=as_json))
    assert failure.fault.kind is FaultKind.UNAVAILABLE
    assert "10000 bytes" in failure.fault.message


async def test_a_redirect_is_not_followed() -> None:
    async with ScriptedModel([text("stolen")], strict=False) as other:
        elsewhere = {"Location": f"{other.base_url}/chat/completions"}
        failure = await refusal(error(307, "go there", elsewhere))
        assert failure.fault.kind is FaultKind.REFUSED_REQUEST
        assert other.count == 0


async def test_calls_run_side_by_side() -> None:
    hold = Hold()
    async with ScriptedModel([held(hold, text("x"))] * 20) as endpoint:
        port = models(endpoint.base_url)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = [group.create_task(port.answer(request(), None)) for _ in range(20)]
            await endpoint.asked(20)
            hold.release()
        assert {task.result().text for task in running} == {"x"}
        await port.close()


async def test_the_strict_endpoint_fails_a_test_that_sends_nonsense() -> None:
    endpoint = ScriptedModel([])
    await endpoint.__aenter__()
    port = models(endpoint.base_url)
    with pytest.raises(ModelFailure):
        await port.answer(request(), None)
    await port.close()
    with pytest.raises(AssertionError, match="only 0 answers"):
        await endpoint.__aexit__(None, None, None)
