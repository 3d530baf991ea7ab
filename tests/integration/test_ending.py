"""Cancel, close and erase while every slot is taken and the queue is full: prompt all the same."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.scripted import last_said
from tests.integration.stack import Stack, Stacks, seen
from tests.scripted.answers import Answer, call, held, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools

pytestmark = pytest.mark.req("API-8", "SAFE-5")
SOON_S = 2.0
MOST = 6


@dataclass(frozen=True, slots=True)
class Scene:
    """A busy worker with one slot, a session that waits for a person, others for the slot."""

    stack: Stack
    client: Client
    hold: Hold
    busy: str
    waiting: str
    queued: list[str]

    async def soon(self, method: str, path: str, status: int) -> httpx2.Response:
        """Return an answer; nothing else makes room for it meanwhile."""
        began = time.monotonic()
        answer = await self.client.http.request(method, f"/v1/sessions/{path}")
        took_s = time.monotonic() - began
        assert answer.status_code == status, answer.text
        assert took_s < SOON_S
        assert await self.client.status(self.busy) == "running"
        assert self.hold.holding
        return answer


@asynccontextmanager
async def busy(stacks: Stacks) -> AsyncIterator[Scene]:
    """Yield a scene in which not one more session is taken in."""
    hold = Hold()

    def script(request: Body, _n: int) -> Answer:
        said, done = last_said(request)
        if said == "hello" or done:
            return text("hi")
        return call("pay", amount=5) if said == "pay" else held(hold, text("done"))

    env = {"SUREFOOT_MAX_QUEUED": str(MOST), "SUREFOOT_WORKER_SLOTS": "1"}
    async with (
        ScriptedModel(script) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env=env, lease_s=15) as stack,
    ):
        client = stack.client(await stack.start("api"))
        await stack.start("worker")
        (pay,) = [spec for spec in tools.specs() if spec["name"] == "pay"]
        await client.register({**pay, "approval": "always"})
        waiting, second = await client.create("pay"), await client.create("hello")
        await client.reached(waiting, "waiting")
        await client.reached(second, "completed")
        running = await client.create("go")
        await hold.reached()
        await client.post(f"/v1/sessions/{second}/messages", {"text": "go"}, expect=202)
        queued = [second, *[await client.create("go") for _ in range(MOST - 1)]]
        refused = await client.http.post("/v1/sessions", json={"task": "one too many"})
        assert refused.status_code == 429
        yield Scene(stack, client, hold, running, waiting, queued)
        hold.release()


async def test_neither_full_slots_nor_a_full_queue_hold_up_the_end(stacks: Stacks) -> None:
    async with busy(stacks) as scene:
        second, cancelled, closed, erased, *left = scene.queued
        for session_id in (second, cancelled, scene.waiting):
            answer = await scene.soon("POST", f"{session_id}/cancel", 200)
            assert answer.json()["status"] == "cancelled"
        answer = await scene.soon("POST", f"{closed}/close", 200)
        assert answer.json()["status"] == "closed"
        await scene.soon("DELETE", erased, 204)
        assert (await scene.client.session(erased))["status"] == "cancelled"
        for session_id in left:
            assert await scene.client.status(session_id) == "queued"
        for session_id, turns in ((second, 2), (cancelled, 1), (scene.waiting, 1)):
            events = seen(await scene.client.events(session_id))
            assert events.count("turn.ended") == turns
        scene.hold.release()
        for session_id in (scene.busy, *left):
            await scene.client.reached(session_id, "completed")


async def test_all_that_wait_are_ended_at_once(stacks: Stacks) -> None:
    async with busy(stacks) as scene, asyncio.TaskGroup() as group:
        for session_id in scene.queued:
            group.create_task(scene.soon("POST", f"{session_id}/cancel", 200))
