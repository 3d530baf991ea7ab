"""What is told from outside of a call is bounded as results of tools are, whoever tells it."""

import asyncio

import pytest

from tests.integration.client import Json
from tests.integration.people import Scene, people
from tests.integration.stack import Stacks
from tests.scripted.answers import call, text

HUGE: Json = {"rows": "word " * 150_000}
KEPT = 80 * 1024


async def most_kept(scene: Scene) -> int:
    [row] = await scene.stack.rows("select max(octet_length(payload)) as most from events")
    found: int = row["most"]
    return found


def told(scene: Scene) -> str:
    content: str = scene.model.requests[-1].messages[-1]["content"]
    return content


@pytest.mark.req("TOOL-10", "TOOL-12", "STATE-9")
async def test_of_a_verification_and_of_a_fork(stacks: Stacks) -> None:
    env = {"SUREFOOT_TOOL_TIMEOUT_S": "1"}
    script = [call("pay", amount=5), text("paid"), text("paid there")]
    async with people(stacks, script, env=env, lease_s=2) as scene:
        hold = scene.tools.hold_after("pay")
        session = await scene.client.create("go")
        async with asyncio.timeout(20):
            await hold.reached()
        scene.process.kill()
        client = scene.stack.client(await scene.stack.start("all", env=env))
        shown = await client.reached(session, "waiting")
        assert shown["pending"]["kind"] == "verification"
        body = {"call_id": "t1_c1_1", "outcome": "happened", "output": HUGE}
        await client.post(f"/v1/sessions/{session}/verifications", body, expect=202)
        await client.reached(session, "completed")
        assert "truncated: 2,000 of" in told(scene)
        assert len(told(scene)) < 2200
        assert await most_kept(scene) < KEPT
        events = await client.events(session)
        closed = next(e["seq"] for e in events if e["type"] == "tool.finished")
        given = {"call_id": "t1_c1_1", "output": HUGE}
        wanted = {"at_seq": closed, "tool_result": given}
        fork = await client.post(f"/v1/sessions/{session}/fork", wanted, expect=201)
        await client.reached(fork["id"], "completed")
        assert "truncated: 2,000 of" in told(scene)
        assert len(told(scene)) < 2200
        assert await most_kept(scene) < KEPT
        for made in (session, fork["id"]):
            report = await client.post(f"/v1/sessions/{made}/replay")
            assert report["identical"] is True, report
