"""Sessions change hands: after a kill within the lease, on SIGTERM at once; streams never block."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.integration.client import Client, Frame, Reader
from tests.integration.process import Process
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import LEASE_S, Stack, Stacks, seen
from tests.scripted.answers import text
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

pytestmark = pytest.mark.alone

SCRIPT = by_text({"go": [SLOW, text("done")], "hello": [text("hi")]})
DRAIN_S = 3.0
MARGIN_S = 2.0
STREAMS = 20


@dataclass(frozen=True, slots=True)
class Scene:
    """A session whose owner waits for a slow tool."""

    stack: Stack
    api: Process
    owner: Process
    client: Client
    session_id: str
    tools: ScriptedTools
    hold: Hold

    async def claimed_at(self) -> float:
        """Return when the session was claimed last, by the clock of this machine."""
        rows = await self.stack.rows(
            "select extract(epoch from at)::float8 as at from events"
            " where session_id = $1 and type = 'session.claimed' order by seq desc limit 1",
            self.session_id,
        )
        return float(rows[0]["at"])


@asynccontextmanager
async def running(stacks: Stacks, *, lease_s: float = LEASE_S) -> AsyncIterator[Scene]:
    """Yield the scene once the tool runs; the tool is released at the end at the latest."""
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(SCRIPT))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(stacks.open(model=model.base_url, lease_s=lease_s))
        hold = tools.hold_before("slow")
        api, owner = await stack.start("api"), await stack.start("worker")
        client = stack.client(api)
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        session_id = await client.create("go")
        async with asyncio.timeout(60):
            await tools.called()
        yield Scene(stack, api, owner, client, session_id, tools, hold)


@pytest.mark.case("C064")
@pytest.mark.req("STATE-4", "API-4")
async def test_a_killed_owner_is_replaced_within_its_lease(stacks: Stacks) -> None:
    async with running(stacks) as scene:
        await scene.stack.start("worker")
        killed = time.time()
        scene.owner.kill()
        path = f"/v1/sessions/{scene.session_id}/resume"
        assert (await scene.client.http.post(path)).status_code == 409
        async with asyncio.timeout(60):
            await scene.tools.called(2)
        scene.hold.release()
        session = await scene.client.settled(scene.session_id)
        assert session["status"] == "completed"
        assert await scene.claimed_at() - killed < LEASE_S + MARGIN_S
        assert len({d.key for d in scene.tools.received}) == 1


@pytest.mark.case("C066")
@pytest.mark.req("OPS-4", "STATE-4")
async def test_a_drained_owner_hands_over_at_once(stacks: Stacks) -> None:
    """With a lease of 15 s the takeover shows that nobody waited for it to run out."""
    async with running(stacks, lease_s=15) as scene:
        began = time.monotonic()
        scene.owner.terminate()
        assert await scene.owner.wait() == 0
        assert time.monotonic() - began < DRAIN_S + MARGIN_S
        between = await scene.client.session(scene.session_id)
        assert between["status"] in {"queued", "running"}
        assert "turn.ended" not in seen(await scene.client.events(scene.session_id))
        await scene.stack.start("worker")
        ready = time.time()
        async with asyncio.timeout(60):
            await scene.tools.called(2)
        scene.hold.release()
        session = await scene.client.settled(scene.session_id)
        assert session["status"] == "completed"
        assert await scene.claimed_at() - ready < MARGIN_S


@pytest.mark.case("C066")
@pytest.mark.req("OPS-4", "API-8")
async def test_a_cancel_before_the_drain_stays(stacks: Stacks) -> None:
    async with running(stacks, lease_s=15) as scene:
        scene.owner.freeze()
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(scene.client.cancel(scene.session_id))

            async def asked() -> bool:
                rows = await scene.stack.rows("select 1 from inbox")
                return bool(rows)

            await until(asked)
            scene.owner.terminate()
            scene.owner.thaw()
            await scene.stack.start("worker")
        assert cancelled.result()["status"] == "cancelled"
        assert await scene.owner.wait() == 0
        events = await scene.client.events(scene.session_id)
        assert seen(events).count("turn.ended") == 1
        assert events[-1]["data"]["status"] == "cancelled"
        assert len(scene.tools.received) == 1


@pytest.mark.case("C076")
@pytest.mark.req("API-3", "OPS-4")
async def test_idle_streams_do_not_hold_up_the_end(stacks: Stacks) -> None:
    async with running(stacks, lease_s=15) as scene:
        other = await scene.stack.start("api")
        urls = [scene.api.url]
        readers = [Reader(scene.session_id, lambda: urls) for _ in range(STREAMS)]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.run())
            head = len(await scene.client.events(scene.session_id))
            await until(lambda: all(r.last_id == head for r in readers), what="all have read all")
            await scene.client.close()
            urls[:] = [other.url]
            began = time.monotonic()
            scene.api.terminate()
            assert await scene.api.wait() == 0
            assert time.monotonic() - began < DRAIN_S + MARGIN_S
            await until(lambda: all(r.connections > 1 for r in readers), what="all came back")
            scene.hold.release()
        events = await scene.stack.client(other).events(scene.session_id)
        for reader in readers:
            assert [f.data for f in reader.durable] == events
            assert isinstance(reader.frames[-1], Frame)
