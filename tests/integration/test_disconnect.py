"""A reader leaves: the session goes on, or ends with its last reader where it was made so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from app.devstack import embedded_valkey_server
from app.runtime.sessions.audience import GRACE_S
from tests.integration.client import Client, Reader
from tests.integration.process import Process
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stack, Stacks, seen
from tests.scripted.answers import text
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

pytestmark = pytest.mark.slow

SCRIPT = by_text({"go": [SLOW, text("done")]})
LONGER_S = GRACE_S + 2
"""After this a session that was to be cancelled would be: what is waited for is the time itself."""


@dataclass(slots=True)
class Scene:
    """A session that waits for a slow tool, two APIs and a worker."""

    stack: Stack
    apis: list[Process]
    clients: list[Client]
    session_id: str
    hold: Hold

    @asynccontextmanager
    async def reading(self, client: Client) -> AsyncIterator[None]:
        """Read the stream for as long as the block lasts, then go away without a word."""
        async with client.stream(self.session_id) as frames:
            assert frames is not None
            async for frame in frames:
                if frame.type == "tool.intended":
                    break
            yield

    async def goes_on(self) -> None:
        """Look once a cancel would have come."""
        await asyncio.sleep(LONGER_S)
        assert await self.clients[0].status(self.session_id) == "running"
        assert await self.stack.rows("select 1 from inbox") == []


@asynccontextmanager
async def scene(stacks: Stacks, on_disconnect: str | None) -> AsyncIterator[Scene]:
    """Yield once the tool runs; every client has connections of its own."""
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(SCRIPT))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(stacks.open(model=model.base_url, lease_s=15))
        hold = tools.hold_before("slow")
        env = {"SUREFOOT_LINGER_S": str(LONGER_S)}
        apis = [await stack.start("api", env=env), await stack.start("api")]
        await stack.start("worker")
        clients = [stack.client(api) for api in apis]
        await clients[0].register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        fields = {} if on_disconnect is None else {"on_disconnect": on_disconnect}
        session_id = await clients[0].create("go", **fields)
        async with asyncio.timeout(60):
            await tools.called()
        yield Scene(stack, apis, clients, session_id, hold)


@pytest.mark.case("C055")
@pytest.mark.req("API-8")
@pytest.mark.parametrize("on_disconnect", [None, "continue"])
async def test_closing_the_stream_kills_nothing(stacks: Stacks, on_disconnect: str | None) -> None:
    async with scene(stacks, on_disconnect) as it:
        async with it.reading(it.clients[0]):
            pass
        await it.goes_on()
        it.hold.release()
        session = await it.clients[0].settled(it.session_id)
        assert (session["status"], session["result"]["text"]) == ("completed", "done")
        assert session["on_disconnect"] == "continue"


@pytest.mark.case("C056")
@pytest.mark.req("API-8", "STATE-10")
@pytest.mark.parametrize("second", [0, 1])
async def test_only_the_last_reader_takes_the_session_with_him(stacks: Stacks, second: int) -> None:
    """The second reads through the same process, or through another one."""
    async with scene(stacks, "cancel") as it:
        async with it.reading(it.clients[0]):
            async with it.reading(it.clients[second]):
                pass
            await it.goes_on()
        session = await it.clients[1].reached(it.session_id, "cancelled")
        events = await it.clients[1].events(it.session_id)
        assert seen(events).count("turn.ended") == 1
        opened = [e["data"]["call_id"] for e in events if e["type"] == "tool.intended"]
        closed = [e["data"]["call_id"] for e in events if e["type"] == "tool.finished"]
        assert opened == closed
        assert session["on_disconnect"] == "cancel"


@pytest.mark.case("C056")
@pytest.mark.req("API-8")
async def test_the_first_leaves_and_the_other_takes_it_with_him(stacks: Stacks) -> None:
    async with scene(stacks, "cancel") as it:
        async with it.reading(it.clients[1]):
            async with it.reading(it.clients[0]):
                pass
            await it.goes_on()
        await it.clients[0].reached(it.session_id, "cancelled")


@pytest.mark.req("API-8")
async def test_who_comes_back_within_the_grace_has_not_left(stacks: Stacks) -> None:
    async with scene(stacks, "cancel") as it:
        async with it.reading(it.clients[0]):
            pass
        await asyncio.sleep(1)  # a browser takes two
        async with it.reading(it.clients[1]):
            await it.goes_on()


@pytest.mark.req("API-8", "OPS-4")
async def test_a_drain_of_the_api_is_no_reader_leaving(stacks: Stacks) -> None:
    """Not even while the process that drains goes on answering."""
    async with scene(stacks, "cancel") as it:
        async with it.reading(it.clients[0]):
            it.apis[0].terminate()
            assert await it.apis[0].wait() == 0
        it.clients = it.clients[1:]
        await it.goes_on()
        it.hold.release()
        assert (await it.clients[0].settled(it.session_id))["status"] == "completed"


@pytest.mark.req("API-8", "STATE-2")
async def test_without_redis_nobody_can_tell_and_nothing_is_cancelled(stacks: Stacks) -> None:
    async with (
        embedded_valkey_server() as valkey,
        scene(replace(stacks, redis_url=valkey.url), "cancel") as it,
    ):
        async with it.reading(it.clients[0]):
            await valkey.kill()
        await it.goes_on()
        await valkey.start()
        await it.clients[0].reached(it.session_id, "cancelled", timeout_s=60)


@pytest.mark.req("API-8")
async def test_a_reader_to_the_end_leaves_a_session_that_can_go_on(stacks: Stacks) -> None:
    """The stream ends with the turn: nobody has left early."""
    async with scene(stacks, "cancel") as it:
        reader = Reader(it.session_id, lambda: [it.apis[0].url])
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run())
            await until(lambda: bool(reader.durable))
            it.hold.release()
        assert reader.durable[-1].type == "turn.ended"
        await asyncio.sleep(LONGER_S)
        assert await it.clients[0].status(it.session_id) == "completed"
        assert await it.stack.rows("select 1 from inbox") == []
