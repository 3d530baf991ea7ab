"""A stream on which nothing happens for long, read through what compresses and cuts idle ones."""

import asyncio

import pytest

from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stacks
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools

IDLE_S = 5.0
"""What the reader takes for a dead stream; heartbeats come each second here, each 15 by default."""


@pytest.mark.req("API-3")
@pytest.mark.case("C062")
async def test_a_long_tool_lets_no_reader_time_out(stacks: Stacks) -> None:
    """It gets something at once, and then often enough, unpacked, and nothing that has an id."""
    async with (
        ScriptedModel(by_text({"go": [SLOW, text("done")]})) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env={"SUREFOOT_STREAM_PING_S": "1"}) as stack,
    ):
        client = stack.client(await stack.start("all"))
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        hold = tools.hold_before("slow")
        session_id = await client.create("go")
        async with asyncio.timeout(20):
            await tools.called()
        path = f"/v1/sessions/{session_id}/stream"
        headers = {"Accept-Encoding": "gzip, br"}
        seen, beats, beats_with_id = b"", 0, 0
        async with client.http.stream("GET", path, headers=headers, timeout=IDLE_S) as answer:
            assert "content-encoding" not in answer.headers
            async for piece in answer.aiter_raw():
                seen += piece
                comments = [block for block in seen.split(b"\n\n") if block.startswith(b":")]
                beats = len(comments)
                beats_with_id = sum(b"\nid:" in comment for comment in comments)
                if beats > IDLE_S:
                    hold.release()
        assert beats > IDLE_S
        assert beats_with_id == 0
        assert seen.count(b"event: turn.ended") == 1
