"""A call of unknown outcome is looked up at the tool before anybody is asked (TOOL-10)."""

import pytest

from tests.integration.client import Json
from tests.integration.people import people
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import call, text

pytestmark = pytest.mark.req("TOOL-10")
SCRIPT = [call("pay", amount=5), text("done")]


def _decisions(events: list[Json]) -> list[tuple[bool, str]]:
    return [
        (e["data"]["happened"], e["data"]["by"])
        for e in events
        if e["type"] == "verification.decided"
    ]


@pytest.mark.req("STATE-4")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_whose_owner_was_killed_is_looked_up(stacks: Stacks, when: str) -> None:
    """Killed before the effect: it did not happen; after it: it did. No person is needed."""
    async with people(stacks, SCRIPT) as scene:
        check = scene.tools.status_check()
        changed = next(s for s in scene.tools.specs() if s["name"] == "pay")
        changed |= {"timeout_s": 1, "status_check": check}
        await scene.client.http.put("/v1/tools/pay", json=changed)
        hold = scene.tools.hold_before("pay") if when == "before" else scene.tools.hold_after("pay")
        session = await scene.client.create("pay")
        await hold.reached()
        scene.process.kill()
        client = scene.stack.client(await scene.stack.start("all"))
        ended = await client.reached(session, "completed", timeout_s=40)
        events = await client.events(session)
        assert _decisions(events) == [(when == "after", "status_check")]
        assert "waiting" not in {e["phase"] for e in events}
        assert len(scene.tools.effects) == (1 if when == "after" else 0)
        told = [m["content"] for m in scene.model.requests[-1].messages if m["role"] == "tool"]
        expected = "did not happen" if when == "before" else '"ok":true'
        assert expected in told[0]
        assert ended["result"]["text"] == "done"


async def test_a_living_worker_asks_the_tool_too(stacks: Stacks) -> None:
    """A timeout after the effect: the tool says that it happened, and the model is told so."""
    async with people(stacks, SCRIPT) as scene:
        changed = next(s for s in scene.tools.specs() if s["name"] == "pay")
        changed |= {"timeout_s": 1, "status_check": scene.tools.status_check()}
        await scene.client.http.put("/v1/tools/pay", json=changed)
        scene.tools.hold_after("pay")
        session = await scene.client.create("pay")
        await scene.client.reached(session, "completed")
        events = await scene.client.events(session)
        assert _decisions(events) == [(True, "status_check")]
        assert seen(events).count("tool.checked") == 1
        assert len(scene.tools.effects) == 1


async def test_a_tool_that_cannot_be_asked_leaves_it_to_a_person(stacks: Stacks) -> None:
    async with people(stacks, SCRIPT) as scene:
        changed = next(s for s in scene.tools.specs() if s["name"] == "pay")
        url = f"{scene.tools.root}/code/503?key={{idempotency_key}}"
        changed |= {"timeout_s": 1, "status_check": {"url": url}}
        await scene.client.http.put("/v1/tools/pay", json=changed)
        hold = scene.tools.hold_after("pay")
        session = await scene.client.create("pay")
        await hold.reached()
        scene.process.kill()
        client = scene.stack.client(await scene.stack.start("all"))
        shown = await client.reached(session, "waiting", timeout_s=40)
        (call_in_doubt,) = shown["pending"]["calls"]
        assert shown["pending"]["kind"] == "verification"
        assert seen(await client.events(session)).count("tool.checked") == 3
        await client.verify(session, call_in_doubt["call_id"], "happened")
        await client.reached(session, "completed")
        assert len(scene.tools.effects) == 1
