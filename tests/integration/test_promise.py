"""The two runs every reader of the README tries, over HTTP, with real processes."""

import time
from contextlib import AsyncExitStack

import pytest

from tests.integration.client import Reader
from tests.integration.stack import Stacks, seen
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import shop, weather
from tests.scripted.tools import ScriptedTools

SHOP = "a product costs 299, 20 % off, then minus 50, how much is it?"
ONE_CALL = [
    "session.created",
    "turn.started",
    "phase.entered",
    "phase.entered",
    "model.requested",
    "model.answered",
    "phase.entered",
    "tool.intended",
    "tool.finished",
    "phase.entered",
    "step.finished",
    "phase.entered",
    "phase.entered",
    "model.requested",
    "model.answered",
    "phase.entered",
    "step.finished",
    "phase.entered",
    "turn.ended",
]
"""The golden order of a turn with one tool call; a claim rides along where one was made."""


@pytest.mark.req("API-1", "API-2", "API-3", "MODE-3", "LOOP-1", "STATE-1", "API-10")
async def test_shop_price(stacks: Stacks) -> None:
    async with (
        ScriptedModel(shop) as model,
        stacks.open(model=model.base_url, lease_s=15) as stack,
    ):
        api, worker = await stack.start("api"), await stack.start("worker")
        other = await stack.start("api")
        client = stack.client(api)
        began = time.monotonic()
        session_id = await client.create(SHOP)
        assert time.monotonic() - began < 5
        reader = Reader(session_id, lambda: [other.url])
        await reader.run()
        session = await client.session(session_id)
        events = await client.events(session_id)

        assert session["status"] == "completed"
        assert session["stop_reason"] == "final_answer"
        assert "189.2" in session["result"]["text"]
        assert session["usage"]["model_calls"] == model.count == 2
        assert session["usage"]["tool_calls"] == 1
        finished = next(e["data"] for e in events if e["type"] == "tool.finished")
        assert finished["output"] == {"result": 189.2}
        assert [t for t in seen(events) if t != "session.claimed"] == ONE_CALL
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        assert session["last_seq"] == len(events)
        assert [(f.seq, f.type, f.data) for f in reader.durable] == [
            (e["seq"], e["type"], e) for e in events
        ]
        assert worker.alive


@pytest.mark.req("API-5", "TOOL-1", "TOOL-10", "OBS-1", "MODE-3")
async def test_weather_and_reminder(stacks: Stacks) -> None:
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(weather))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(stacks.open(model=model.base_url, lease_s=15))
        client = stack.client(await stack.start("all"))
        await client.register(*tools.specs()[:2])
        session_id = await client.create("Is rain coming? Then remind me of the umbrella.")
        session = await client.settled(session_id)
        events = await client.events(session_id)

        assert session["status"] == "completed"
        assert "31" in session["result"]["text"]
        assert (model.count, len(tools.received)) == (3, 2)
        assert session["usage"]["model_calls"] == 3
        assert session["usage"]["tool_calls"] == 2
        first, second = tools.received
        assert (first.tool, second.tool) == ("get_weather", "create_reminder")
        intents = [e["data"] for e in events if e["type"] == "tool.intended"]
        assert second.key == intents[1]["key"] == f"{session_id}:{intents[1]['call_id']}"
        assert [i["effect"] for i in intents] == ["read", "once"]
        parents = [d.headers["traceparent"].split("-") for d in tools.received]
        assert [parent[1] for parent in parents] == [session["trace_id"]] * 2
        assert parents[0][2] != parents[1][2]
        assert seen(events).count("turn.ended") == 1


@pytest.mark.req("API-1", "OPS-3")
async def test_the_command_itself_serves(stacks: Stacks) -> None:
    """The other tests fork a process that has imported the service; this one runs the command."""
    async with ScriptedModel(shop) as model, stacks.open(model=model.base_url) as stack:
        process = await stack.spawn("all")
        client = stack.client(process)
        session = await client.settled(await client.create(SHOP))
        assert "189.2" in session["result"]["text"]
        process.terminate()
        assert await process.wait() == 0
