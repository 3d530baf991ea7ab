"""What a message does to a busy session: reject, enqueue, steer, interrupt (API-7)."""

import asyncio
from collections import Counter

import pytest

from tests.integration.client import Client, Json
from tests.integration.people import people
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import Answer, args, calls, held, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.waiting import until

pytestmark = pytest.mark.req("API-7")


async def _say(client: Client, session: str, words: str, policy: str) -> Json:
    body = {"text": words, "when_busy": policy}
    return await client.post(f"/v1/sessions/{session}/messages", body, expect=202)


async def _received(client: Client, session: str) -> None:
    """Wait until the owner has taken the message up: it may come after a step, or before."""

    async def received() -> bool:
        return "message.received" in seen(await client.events(session))

    await until(received, timeout_s=60)


class Steps:
    """A model that calls `slow` for the first question, and says what it was told last."""

    def __call__(self, request: Body, _n: int) -> Answer:
        messages = request["messages"]
        if [m["role"] for m in messages] == ["system", "user"]:
            return calls(tc("c1", "slow", args(sec=1)))
        users = [str(m["content"]) for m in messages if m["role"] == "user"]
        return text(f"I heard: {users[-1]}")


async def test_a_steering_message_comes_after_the_results_of_the_step(stacks: Stacks) -> None:
    async with people(stacks, Steps()) as scene:
        hold = scene.tools.hold_before("slow")
        session = await scene.client.create("begin")
        await hold.reached()
        receipt = await _say(scene.client, session, "in French please", "steer")
        assert receipt["receipt"] == "steered"
        await _received(scene.client, session)
        hold.release()
        ended = await scene.client.reached(session, "completed")
        assert ended["result"]["text"] == "I heard: in French please"
        assert ended["turn"] == 1
        roles = [m["role"] for m in scene.model.requests[-1].messages]
        assert roles == ["system", "user", "assistant", "tool", "user"]


async def test_a_message_that_steers_a_final_answer_is_answered_in_the_same_turn(
    stacks: Stacks,
) -> None:
    hold = Hold()

    def script(request: Body, n: int) -> Answer:
        said = str(request["messages"][-1]["content"])
        return held(hold, text("first")) if n == 1 else text(f"I heard: {said}")

    async with people(stacks, script) as scene:
        session = await scene.client.create("begin")
        await hold.reached()
        await _say(scene.client, session, "and the rest?", "steer")
        await _received(scene.client, session)
        hold.release()
        ended = await scene.client.reached(session, "completed")
        assert (ended["result"]["text"], ended["turn"]) == ("I heard: and the rest?", 1)
        assert seen(await scene.client.events(session)).count("turn.ended") == 1


@pytest.mark.req("API-8", "STATE-10")
@pytest.mark.case("C042", "C054")
@pytest.mark.parametrize("at", ["tool", "model"])
async def test_an_interrupt_cuts_what_is_in_flight_and_starts_its_own_turn(
    stacks: Stacks, at: str
) -> None:
    model_hold = Hold()

    def script(request: Body, n: int) -> Answer:
        if n == 1:
            slow = calls(tc("c1", "slow", args(sec=60)))
            return slow if at == "tool" else held(model_hold, slow)
        return text(f"I heard: {request['messages'][-1]['content']}")

    async with people(stacks, script) as scene:
        tool_hold = scene.tools.hold_before("slow")
        session = await scene.client.create("begin")
        await _say_when(scene.client, session, tool_hold if at == "tool" else model_hold)
        receipt = await _say(scene.client, session, "stop that", "interrupt")
        assert receipt["receipt"] == "interrupted"

        async def third_turn_over() -> bool:
            return seen(await scene.client.events(session)).count("turn.ended") == 3

        await until(third_turn_over, timeout_s=60)
        events = await scene.client.events(session)
        ends = [e["data"]["stop_reason"] for e in events if e["type"] == "turn.ended"]
        assert ends == ["cancelled", "final_answer", "final_answer"]
        asked = [e["data"]["text"] for e in events if e["type"] == "turn.started"]
        assert asked == ["begin", "stop that", "later"]
        tool_hold.release()
        model_hold.release()


async def _say_when(client: Client, session: str, hold: Hold) -> None:
    """Enqueue something once the hold is reached: the interrupt has to pass it."""
    await hold.reached()
    assert (await _say(client, session, "later", "enqueue"))["receipt"] == "enqueued"
    assert (await client.session(session))["status"] == "running"


async def test_nothing_that_was_accepted_is_lost_whatever_the_policy(stacks: Stacks) -> None:
    """Fifty messages of all policies into one session: each stands in its trace, in some turn."""

    def script(request: Body, _n: int) -> Answer:
        return text(f"I heard: {request['messages'][-1]['content']}")

    async with people(stacks, script) as scene:
        session = await scene.client.create("begin")
        policies = ("reject", "enqueue", "steer", "interrupt")

        async def send(n: int) -> tuple[str, int]:
            body = {"text": f"m{n}", "when_busy": policies[n % 4]}
            path = f"/v1/sessions/{session}/messages"
            answer = await scene.client.http.post(path, json=body)
            return f"m{n}", answer.status_code

        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(send(n)) for n in range(48)]
        accepted = [text for text, status in (t.result() for t in sent) if status == 202]
        assert {status for _, status in (t.result() for t in sent)} <= {202, 409}

        async def rested() -> bool:
            shown = await scene.client.session(session)
            return bool(shown["status"] == "completed")

        await until(rested, timeout_s=60)
        events = await scene.client.events(session)
        received = [e["data"]["text"] for e in events if e["type"] == "message.received"]
        assert Counter(received) == Counter(accepted)
        said = "\n".join(str(m["content"]) for m in scene.model.requests[-1].messages)
        assert all(words in said for words in accepted)
        assert max(e["turn"] for e in events) == seen(events).count("turn.ended")
