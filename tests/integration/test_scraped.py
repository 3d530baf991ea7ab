"""`/metrics` of a running process: what it says of the process itself is true."""

import asyncio

import pytest

from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stacks
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools


@pytest.mark.req("OPS-5")
async def test_the_gauges_of_a_process_that_works(stacks: Stacks) -> None:
    script = by_text({"go": [SLOW, text("done")]})
    async with (
        ScriptedModel(script) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url) as stack,
    ):
        client = stack.client(await stack.start("all"))
        hold = tools.hold_before("slow")
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        session_id = await client.create("go")
        async with asyncio.timeout(60):
            await tools.called()
        told = (await client.http.get("/metrics")).text.splitlines()
        assert "surefoot_redis_up 1.0" in told
        assert "surefoot_sessions_owned 1.0" in told
        hold.release()
        await client.settled(session_id)
