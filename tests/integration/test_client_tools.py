"""Tools which the caller carries out: the session waits for them and for nothing else (TOOL-1)."""

import pytest

from tests.integration.people import people
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import args, call, calls, tc, text
from tests.waiting import until

pytestmark = pytest.mark.req("TOOL-1", "STATE-10")
ASKED = [
    calls(tc("c1", "ask_device", args(sensor="temp")), tc("c2", "echo", args(text="hi"))),
    text("It is 21 degrees."),
]


async def test_the_caller_gives_the_result_also_to_another_process(stacks: Stacks) -> None:
    async with people(stacks, ASKED) as scene:
        session = await scene.client.create("How warm is it?")
        pending = await scene.waiting(session, "client_tools")
        (wanted,) = pending["calls"]
        assert (wanted["name"], wanted["arguments"]) == ("ask_device", {"sensor": "temp"})
        scene.process.kill()
        client = scene.stack.client(await scene.stack.start("all"))
        path = f"/v1/sessions/{session}/tool_results"
        body = {"call_id": wanted["call_id"], "output": {"value": 21}}
        await client.post(path, body, expect=202)
        problem = await client.post(path, body, expect=409)
        assert problem["type"].startswith("/problems/tool-result-")
        ended = await client.reached(session, "completed")
        assert ended["result"]["text"] == "It is 21 degrees."
        told = [m for m in scene.model.requests[-1].messages if m["role"] == "tool"]
        assert [m["tool_call_id"] for m in told] == ["c1", "c2"]
        assert "21" in told[0]["content"]
        assert seen(await client.events(session)).count("turn.ended") == 1


async def test_a_result_may_come_while_the_siblings_still_run(stacks: Stacks) -> None:
    script = [
        calls(tc("c1", "ask_device", args(sensor="temp")), tc("c2", "slow", args(sec=1))),
        text("done"),
    ]
    async with people(stacks, script) as scene:
        hold = scene.tools.hold_before("slow")
        session = await scene.client.create("go")

        async def begun() -> bool:
            return seen(await scene.client.events(session)).count("tool.intended") == 2

        await until(begun, timeout_s=60)
        path = f"/v1/sessions/{session}/tool_results"
        await scene.client.post(path, {"call_id": "t1_c1_2", "output": 1}, expect=409)
        await scene.client.post(path, {"call_id": "t1_c9_9", "output": 1}, expect=409)
        await scene.client.post(path, {"call_id": "t1_c1_1", "error": "no sensor"}, expect=202)
        hold.release()
        await scene.client.reached(session, "completed")
        told = [m for m in scene.model.requests[-1].messages if m["role"] == "tool"]
        assert "no sensor" in told[0]["content"]


async def test_a_cancelled_call_takes_no_result(stacks: Stacks) -> None:
    async with people(stacks, [call("ask_device", sensor="temp")]) as scene:
        session = await scene.client.create("go")
        await scene.waiting(session, "client_tools")
        await scene.client.cancel(session)
        path = f"/v1/sessions/{session}/tool_results"
        problem = await scene.client.post(path, {"call_id": "t1_c1_1", "output": 1}, expect=409)
        assert problem["type"] == "/problems/tool-result-not-pending"
        for body in ({"call_id": "a"}, {"call_id": "a", "output": 1, "error": "b"}):
            await scene.client.post(path, body, expect=422)


async def test_a_result_is_bounded_as_that_of_any_tool(stacks: Stacks) -> None:
    """What a caller sends fits into a request to the model, and no journal grows by megabytes."""
    script = [call("ask_device", sensor="temp"), text("done")]
    async with people(stacks, script) as scene:
        session = await scene.client.create("go")
        await scene.waiting(session, "client_tools")
        path = f"/v1/sessions/{session}/tool_results"
        huge = {"call_id": "t1_c1_1", "output": {"rows": "word " * 190_000}}
        await scene.client.post(path, huge, expect=202)
        shown = await scene.client.reached(session, "completed", "stopped")
        assert shown["status"] == "completed"
        told = scene.model.requests[-1].messages[-1]["content"]
        assert "truncated: 2,000 of" in told
        assert len(told) < 2200
        kept = await scene.stack.rows("select max(octet_length(payload)) as most from events")
        assert kept[0]["most"] < 80 * 1024


async def test_approval_comes_before_the_caller_is_asked(stacks: Stacks) -> None:
    script = [call("ask_device", sensor="temp"), text("done")]
    async with people(stacks, script) as scene:
        changed = {
            "name": "ask_device",
            "kind": "client",
            "description": "Reads a sensor.",
            "parameters": {"type": "object", "properties": {"sensor": {"type": "string"}}},
            "effect": "read",
            "approval": "always",
        }
        await scene.client.http.put("/v1/tools/ask_device", json=changed)
        session = await scene.client.create("go")
        (approval,) = (await scene.waiting(session, "approval"))["approvals"]
        path = f"/v1/sessions/{session}/tool_results"
        await scene.client.post(path, {"call_id": "t1_c1_1", "output": 1}, expect=409)
        await scene.decide(approval["id"], "approve")
        await until(lambda: _client_tools(scene.client, session), timeout_s=60)
        await scene.client.post(path, {"call_id": "t1_c1_1", "output": 1}, expect=202)
        await scene.client.reached(session, "completed")


async def _client_tools(client: object, session: str) -> bool:
    shown = await client.session(session)  # type: ignore[attr-defined]
    return bool(shown["pending"] and shown["pending"]["kind"] == "client_tools")
