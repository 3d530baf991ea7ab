"""What endpoints are told besides ends of turns: somebody is asked, something looks like an attack.

Real processes, sockets and tools.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.integration.client import Json
from tests.integration.people import Scene, people
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, args, call, calls, tc, text
from tests.tools.support import Seen, Server, raw, serving
from tests.waiting import until

ASKED = "input.requested"
FLAGGED = "security.flagged"
INSIDE = "http://169.254.169.254/latest/meta-data"


@dataclass(frozen=True, slots=True)
class Told:
    """A scene with an endpoint, and what that was told."""

    scene: Scene
    server: Server

    def said(self, kind: str) -> list[Json]:
        messages = [json.loads(seen.body) for seen in self.server.seen]
        return [m["data"] for m in messages if m["type"] == kind]

    async def heard(self, kind: str, times: int = 1) -> list[Json]:
        what = f"told of {kind}"
        await until(lambda: len(self.said(kind)) >= times, timeout_s=30, what=what)
        return self.said(kind)


@asynccontextmanager
async def told(
    stacks: Stacks, script: list[Answer], *events: str, env: dict[str, str] | None = None
) -> AsyncIterator[Told]:
    def taken(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(204))

    async with serving(taken) as server, people(stacks, script, env=env) as scene:
        body = {"url": server.url, "events": [*events, "turn.ended"]}
        await scene.client.post("/v1/webhooks", body, expect=201)
        yield Told(scene, server)


@pytest.mark.req("API-15", "TOOL-1")
async def test_a_call_for_the_caller_is_told_with_what_he_needs_to_carry_it_out(
    stacks: Stacks,
) -> None:
    both = calls(tc("c1", "ask_device", args(sensor="temp")), tc("c2", "echo", args(text="hi")))
    async with told(stacks, [both, text("done")], ASKED) as it:
        session = await it.scene.client.create("go")
        await it.scene.waiting(session, "client_tools")
        [data] = await it.heard(ASKED)
        assert (data["session_id"], data["event_type"]) == (session, "tool.intended")
        asked = data["event"]
        assert (asked["name"], asked["arguments"]) == ("ask_device", {"sensor": "temp"})
        body = {"call_id": asked["call_id"], "output": {"value": 21}}
        await it.scene.client.post(f"/v1/sessions/{session}/tool_results", body, expect=202)
        await it.scene.client.reached(session, "completed")
        await it.heard("turn.ended")
        assert len(it.said(ASKED)) == 1


@pytest.mark.req("API-15", "TOOL-10")
async def test_a_verification_is_told_and_an_approval_under_its_own_name(stacks: Stacks) -> None:
    env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"}
    script = [call("pay", amount=5), text("paid"), text("more")]
    async with told(stacks, script, ASKED, "approval.requested", env=env) as it:
        hold = it.scene.tools.hold_after("pay")
        session = await it.scene.client.create("go")
        async with asyncio.timeout(20):
            await hold.reached()
        assert it.server.seen == []
        it.scene.process.kill()
        client = it.scene.stack.client(await it.scene.stack.start("all", env=env))
        await client.reached(session, "waiting")
        [data] = await it.heard(ASKED)
        assert data["event_type"] == "verification.requested"
        [call_id] = data["event"]["calls"]
        await client.verify(session, call_id, "happened")
        await client.reached(session, "completed")
        await it.heard("turn.ended")
        assert len(it.said(ASKED)) == 1
        last = (await client.session(session))["last_seq"]
        body = {"at_seq": last, "task": "and now?"}
        fork = await client.post(f"/v1/sessions/{session}/fork", body, expect=201)
        await client.reached(fork["id"], "completed")
        await it.heard("turn.ended", 2)
        assert len(it.said(ASKED)) == 1  # a fork tells nothing of what it took over


@pytest.mark.req("API-15", "SAFE-6", "TOOL-16")
async def test_a_call_that_ends_up_inside_is_flagged_and_goes_nowhere(stacks: Stacks) -> None:
    def redirect(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(302, location=INSIDE))

    script = [call("lookup"), text("I could not.")]
    async with serving(redirect) as server, told(stacks, script, FLAGGED) as it:
        await it.scene.client.register(
            {
                "name": "lookup",
                "kind": "http",
                "description": "Looks something up at a server and returns what it says.",
                "parameters": {"type": "object", "properties": {}},
                "http": {"method": "GET", "url": f"{server.url}/x"},
                "effect": "read",
            }
        )
        session = await it.scene.client.create("go")
        ended = await it.scene.client.reached(session, "completed")
        assert ended["result"]["text"] == "I could not."
        [data] = await it.heard(FLAGGED)
        assert (data["session_id"], data["event_type"]) == (session, FLAGGED)
        flag = data["event"]
        assert (flag["guard"], flag["name"], flag["call_id"]) == ("egress", "lookup", "t1_c1_1")
        assert "tools may not reach" in flag["message"]
        [shown] = [
            e for e in await it.scene.client.events(session) if e["type"] == "security.flagged"
        ]
        assert (shown["seq"], shown["data"]) == (data["seq"], flag)
        report = await it.scene.client.post(f"/v1/sessions/{session}/replay")
        assert report["identical"] is True
        why = await it.scene.client.get(f"/v1/sessions/{session}/why")
        assert "the egress guard stopped t1_c1_1" in " ".join(why["sentences"])
