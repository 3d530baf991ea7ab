"""What `resume` takes and refuses, and that going on repeats nothing."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from tests.integration.client import Client
from tests.integration.scripted import ECHO_AND_PAY, REMINDER, SLOW, by_text
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import Answer, call, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

GO_ON = "The limits were raised: go on with the task where you stopped."
AT_ONCE = 20


def endless(request: Body, n: int) -> Answer:
    """Pay once, then echo on and on, until the limits were raised; answer without tools."""
    if "tools" not in request:
        return text("as far as I came")
    if any(m["role"] == "user" and m["content"] == GO_ON for m in request["messages"]):
        return text("finished")
    done = len(results_so_far(request))
    return (
        call("pay", call_id=f"c{n}", amount=5)
        if done == 0
        else call("echo", call_id=f"c{n}", text=f"number {n}")
    )


async def _resume(client: Client, session_id: str, body: object = None) -> int:
    answer = await client.http.post(f"/v1/sessions/{session_id}/resume", json=body or {})
    return answer.status_code


@pytest.mark.case("C067")
@pytest.mark.req("LOOP-13", "API-4")
async def test_twenty_at_once_are_one(stacks: Stacks) -> None:
    """A stopped turn, two API processes, two workers, twenty requests to go on."""
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(endless))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(stacks.open(model=model.base_url, lease_s=15))
        clients = [stack.client(await stack.start("all")) for _ in range(2)]
        await clients[0].register(*(s for s in tools.specs() if s["name"] in {"pay", "echo"}))
        session_id = await clients[0].create("go", limits={"max_steps": 3})
        stopped = await clients[0].settled(session_id)
        assert (stopped["status"], stopped["stop_reason"]) == ("stopped", "max_steps")
        assert stopped["result"]["text"]
        assert await _resume(clients[1], session_id) == 409

        raised = {"limits": {"max_steps": 9}}
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(_resume(clients[n % 2], session_id, raised))
                for n in range(AT_ONCE)
            ]
        assert Counter(task.result() for task in asked) == {202: 1, 409: AT_ONCE - 1}
        session = await clients[0].reached(session_id, "completed")
        events = await clients[0].events(session_id)
        started = [e["data"] for e in events if e["type"] == "turn.started"]
        assert [s.get("continues") for s in started] == [None, 1]
        assert (session["turn"], session["result"]["text"]) == (2, "finished")
        assert seen(events).count("turn.ended") == 2
        assert {e["turn"] for e in events} == {0, 1, 2}
        assert Counter(d.tool for d in tools.received)["pay"] == 1


@pytest.mark.req("API-4", "API-12")
async def test_what_cannot_be_resumed(stacks: Stacks) -> None:
    """All of the contract's table where the answer is 409."""
    script = by_text({"quick": [text("done")], "slow": [SLOW, text("done")]})
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(script))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(stacks.open(model=model.base_url, lease_s=15))
        tools.hold_before("slow")
        client = stack.client(await stack.start("api"))
        await client.register(*(s for s in tools.specs() if s["name"] == "slow"))
        queued = await client.create("slow")
        assert await client.status(queued) == "queued"
        assert await _resume(client, queued) == 409
        await stack.start("worker")
        async with asyncio.timeout(60):
            await tools.called()
        assert await client.status(queued) == "running"
        assert await _resume(client, queued) == 409
        assert (await client.cancel(queued))["status"] == "cancelled"
        assert await _resume(client, queued) == 409
        done = await client.create("quick")
        await client.reached(done, "completed")
        assert await _resume(client, done, {"limits": {"max_steps": 20}}) == 409
        await client.post(f"/v1/sessions/{done}/close", expect=200)
        assert await _resume(client, done) == 409
        assert await _resume(client, "ses_" + "0" * 26) == 404


@pytest.mark.case("C087")
@pytest.mark.req("TOOL-10", "STATE-4", "LOOP-12")
async def test_what_was_done_before_the_wait_is_not_done_again(stacks: Stacks) -> None:
    """A read and a `once` call of one step; the crash leaves the second in doubt."""
    script = by_text({"go": [ECHO_AND_PAY, text("paid")]})
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(script))
        tools = await held.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"}
        stack = await held.enter_async_context(stacks.open(model=model.base_url, env=env))
        hold = tools.hold_after("pay")
        client = stack.client(await stack.start("api"))
        owner = await stack.start("worker")
        await client.register(*(s for s in tools.specs() if s["name"] in {"pay", "echo"}))
        session_id = await client.create("go")
        await _echo_is_done(client, session_id, hold)
        owner.kill()
        await stack.start("worker")
        waiting = await client.reached(session_id, "waiting")
        (pending,) = waiting["pending"]["calls"]
        assert (pending["name"], pending["arguments"]) == ("pay", {"amount": 5})
        assert await _resume(client, session_id) == 409
        await client.verify(session_id, pending["call_id"], "happened")
        assert (await client.reached(session_id, "completed"))["result"]["text"] == "paid"
        again = await client.http.post(
            f"/v1/sessions/{session_id}/verifications",
            json={"call_id": pending["call_id"], "outcome": "did_not_happen"},
        )
        assert again.status_code == 409
        assert Counter(d.tool for d in tools.received) == {"echo": 1, "pay": 1}
        assert model.count == 2


async def _echo_is_done(client: Client, session_id: str, hold: Hold) -> None:
    async with asyncio.timeout(60):
        await hold.reached()

    async def done() -> bool:
        return "tool.finished" in seen(await client.events(session_id))

    await until(done)


@pytest.mark.case("C042")
@pytest.mark.req("STATE-10", "API-8", "API-7")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_message_after_a_cut_tool_is_accepted(stacks: Stacks, *, killed: bool) -> None:
    """The model refuses a history with an open call; after a cancel, and after a kill."""
    script = by_text({"go": [REMINDER], "hello": [text("hi")]})
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(script))
        tools = await held.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"} if killed else {}
        stack = await held.enter_async_context(stacks.open(model=model.base_url, env=env))
        tools.hold_before("create_reminder")
        client = stack.client(await stack.start("api"))
        owner = await stack.start("worker")
        await client.register(*(s for s in tools.specs() if s["name"] == "create_reminder"))
        session_id = await client.create("go")
        async with asyncio.timeout(60):
            await tools.called()
        if killed:
            owner.kill()
            await stack.start("worker")
            await client.reached(session_id, "waiting")
        assert (await client.cancel(session_id))["status"] == "cancelled"
        path = f"/v1/sessions/{session_id}/messages"
        assert (await client.post(path, {"text": "hello"}, expect=202))["receipt"] == "started"
        session = await client.reached(session_id, "completed")
        assert (session["turn"], session["result"]["text"]) == (2, "hi")
        roles = [m["role"] for m in model.bodies[-1]["messages"]]
        assert roles.count("tool") == 1
        assert model.violations == []
        assert len(tools.received) == 1
