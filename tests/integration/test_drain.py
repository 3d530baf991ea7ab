"""SIGTERM: nothing new; what runs reaches a boundary or is handed over, and another goes on.

By effect, as docs/guarantees.md has it: a model call and `read` and `idempotent` calls that outlast
the drain are made again by the successor, with the same key; a `once` call is not, a person is
asked. Whatever ends within the drain is journalled by the one who asked for it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.integration.client import Client, Json
from tests.integration.process import Process
from tests.integration.scripted import REMINDER, SLOW, by_text
from tests.integration.stack import Stack, Stacks, seen
from tests.scripted.answers import call, held, text
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

pytestmark = pytest.mark.alone

TAKEOVER_S = 2.0
NOTHING_S = 2.0
"""How long a drain with nothing in flight may take; on an idle machine it takes 0.2 s."""

TOOL_OF = {"read": "slow", "idempotent": "echo", "once": "create_reminder"}


@dataclass(slots=True)
class Scene:
    """A session in the middle of something, its owner, and another worker that has nothing."""

    stack: Stack
    client: Client
    owner: Process
    heir: Process
    session_id: str
    tools: ScriptedTools
    model: ScriptedModel
    hold: Hold

    async def taken_over(self) -> float:
        """Return when the heir had claimed the session, which it may have let go again since."""

        async def claimed() -> bool:
            return await self.stack.epoch(self.session_id) > 1

        await until(claimed, timeout_s=60, what="the heir has claimed it")
        return time.monotonic()


@asynccontextmanager
async def scene(
    stacks: Stacks, what: str, *, drain_s: float, lease_s: float = 15
) -> AsyncIterator[Scene]:
    """Yield once the model or tool is asked and has not answered."""
    hold = Hold()
    script = by_text(
        {
            "model": [held(hold, text("done"))],
            "read": [SLOW, text("done")],
            "idempotent": [call("echo", text="x"), text("done")],
            "once": [REMINDER, text("done")],
        }
    )
    async with AsyncExitStack() as kept:
        model = await kept.enter_async_context(ScriptedModel(script))
        tools = await kept.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_DRAIN_S": str(drain_s)}
        stack = await kept.enter_async_context(
            stacks.open(model=model.base_url, lease_s=lease_s, env=env)
        )
        client = stack.client(await stack.start("api"))
        owner = await stack.start("worker")
        specs = {spec["name"]: spec for spec in tools.specs()}
        specs["echo"] = {**specs["echo"], "effect": "idempotent"}
        await client.register(*({**specs[name], "timeout_s": 5} for name in TOOL_OF.values()))
        if what != "model":
            hold = tools.hold_before(TOOL_OF[what])
        session_id = await client.create(what)
        async with asyncio.timeout(20):
            await (hold.reached() if what == "model" else tools.called())
        heir = await stack.start("worker")
        yield Scene(stack, client, owner, heir, session_id, tools, model, hold)


@pytest.mark.req("OPS-4", "STATE-4", "TOOL-10")
@pytest.mark.case("C066")
@pytest.mark.parametrize("what", ["model", "read", "idempotent"])
async def test_what_outlasts_the_drain_is_asked_again_by_another_at_once(
    stacks: Stacks, what: str
) -> None:
    """The lease is 15 s: nobody waited for it."""
    async with scene(stacks, what, drain_s=1) as it:
        began = time.monotonic()
        it.owner.terminate()
        taken = await it.taken_over()
        print(f"{what}: taken over {taken - began:.2f} s after SIGTERM, with a drain of 1 s")
        assert taken - began < 1 + TAKEOVER_S
        assert await it.owner.wait() == 0
        between = await it.client.session(it.session_id)
        assert between["status"] in {"queued", "running"}

        def asked_again() -> bool:
            return (it.model.count if what == "model" else len(it.tools.received)) == 2

        await until(asked_again, timeout_s=60)
        it.hold.release()
        session = await it.client.settled(it.session_id)
        assert session["status"] == "completed"
        assert len({d.key for d in it.tools.received}) <= 1
        await _one_end(it, session)


@pytest.mark.req("OPS-4", "TOOL-10")
@pytest.mark.case("C066")
async def test_a_once_call_that_outlasts_the_drain_is_for_a_person(stacks: Stacks) -> None:
    async with scene(stacks, "once", drain_s=1, lease_s=4) as it:
        began = time.monotonic()
        it.owner.terminate()
        taken = await it.taken_over()
        assert taken - began < 1 + TAKEOVER_S
        session = await it.client.settled(it.session_id)
        assert (session["status"], session["pending"]["kind"]) == ("waiting", "verification")
        assert len(it.tools.received) == 1
        (in_doubt,) = session["pending"]["calls"]
        await it.client.verify(it.session_id, in_doubt["call_id"], "happened")
        session = await it.client.reached(it.session_id, "completed")
        assert len(it.tools.received) == 1
        await _one_end(it, session)


@pytest.mark.req("OPS-4", "TOOL-10", "STATE-1")
@pytest.mark.parametrize("what", ["model", "once"])
async def test_what_ends_within_the_drain_is_not_asked_again(stacks: Stacks, what: str) -> None:
    async with scene(stacks, what, drain_s=30) as it:
        it.owner.terminate()
        await until(lambda: "drain.waits" in it.owner.text(), what="it drains")
        began = time.monotonic()
        it.hold.release()
        session = await it.client.settled(it.session_id)
        assert session["status"] == "completed"
        assert await it.owner.wait() == 0
        print(f"{what}: completed elsewhere {time.monotonic() - began:.2f} s after its answer")
        assert time.monotonic() - began < TAKEOVER_S + NOTHING_S
        assert it.model.count == (1 if what == "model" else 2)
        assert len(it.tools.received) == (0 if what == "model" else 1)
        assert "tool.finished" in seen(await it.client.events(it.session_id)) or what == "model"
        await _one_end(it, session)


async def _one_end(it: Scene, session: Json) -> None:
    events = await it.client.events(it.session_id)
    assert seen(events).count("turn.ended") == 1
    assert session["last_seq"] == len(events) == events[-1]["seq"]


@pytest.mark.req("OPS-4")
async def test_an_idle_worker_ends_at_once(stacks: Stacks) -> None:
    async with stacks.open() as stack:
        worker = await stack.start("worker")
        began = time.monotonic()
        worker.terminate()
        assert await worker.wait() == 0
        print(f"an idle worker ended in {time.monotonic() - began:.2f} s")
        assert time.monotonic() - began < NOTHING_S
        assert await stack.rows("select 1 from workers") == []
        assert "drain.ended" in worker.text()


@pytest.mark.req("OPS-4")
async def test_a_second_signal_ends_a_worker_at_once(stacks: Stacks) -> None:
    async with scene(stacks, "read", drain_s=60) as it:
        it.owner.terminate()
        await until(lambda: "drain.waits" in it.owner.text(), what="it drains")
        began = time.monotonic()
        it.owner.terminate()
        await it.owner.wait()
        assert time.monotonic() - began < NOTHING_S
        await it.taken_over()
        it.hold.release()
        assert (await it.client.settled(it.session_id))["status"] == "completed"
