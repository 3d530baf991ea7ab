"""A worker that stands still past its lease, and goes on after another has taken over.

It may write nothing more and start no tool call, wherever it was stopped: also between the durable
intent and the sending, and with an answer in its hands.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.integration.beside import Outcomes, wanted
from tests.integration.client import Client, Json, Reader
from tests.integration.crash import TASK, TOOLS, careful
from tests.integration.stack import Stack, Stacks, seen
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

DELIVERED = {
    "append:2:before": 1,
    "append:2:after": 1,
    "model:2:before": 1,
    "model:2:after": 1,
    "tool:1:before": 1,
    "append:4:before": 1,
    "append:4:after": 0,
    "spec:6:after": 0,
    "tool:2:before": 0,
    "tool:2:after": 1,
    "append:5:before": 1,
    "append:6:before": 1,
}
"""Where the worker is stopped, and how often the reminder is delivered in all."""


@dataclass(slots=True)
class Outcome:
    """The session when its new owner was done, and after the old one had gone on."""

    session: Json
    before: list[Json]
    after: list[Json]
    sent_before: list[str]
    sent_after: list[str]
    reader: Reader
    verified: Json


async def run(stacks: Stacks, point: str) -> Outcome:
    """Stop a worker at a point, let another finish its session, and let the first go on."""
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(careful))
        tools = await held.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"}
        stack = await held.enter_async_context(stacks.open(model=model.base_url, env=env))
        api = await stack.start("api")
        stopped = await stack.start("worker", point=point, stop=True)
        client = stack.client(api)
        await client.register(*tools.specs()[:2])
        session_id = await client.create(TASK, tools=TOOLS)
        reader = Reader(session_id, lambda: [api.url])
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run(timeout_s=90))
            await until(lambda: stopped.frozen, timeout_s=20, what=f"stopped at {point}")
            second = await stack.start("worker")
            session = await client.settled(session_id)
            second.terminate()
            assert await second.wait() == 0
            before, sent_before = await client.events(session_id), _sent(tools, session_id)
            stopped.thaw()
            await _runs_another(stack, client)
            after, sent_after = await client.events(session_id), _sent(tools, session_id)
            for call in (session["pending"] or {"calls": []})["calls"]:
                await client.verify(session_id, call["call_id"], "happened")
            verified = await client.settled(session_id)
        sent_after = sent_after + _sent(tools, session_id)[len(sent_after) :]
    return Outcome(session, before, after, sent_before, sent_after, reader, verified)


def _sent(tools: ScriptedTools, session_id: str) -> list[str]:
    return [d.tool for d in tools.received if d.key.startswith(session_id)]


async def _runs_another(stack: Stack, client: Client) -> None:
    """Return when the worker that was stopped is itself again: it runs a session to its end."""
    other = await client.create(TASK, tools=TOOLS)
    assert (await client.settled(other))["status"] == "completed"
    owners = await stack.rows("select distinct owner from sessions where owner is not null")
    assert owners == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(request: pytest.FixtureRequest, stacks: Stacks) -> Outcomes[str, Outcome]:
    """The outcomes of those points that are tested in this run."""
    made = Outcomes[str, Outcome]()
    await made.run(map(str, wanted(request, "point")), lambda point: run(stacks, point))
    return made


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case("C069")
@pytest.mark.req("STATE-4", "TOOL-10")
@pytest.mark.parametrize("point", DELIVERED)
def test_stopped_past_its_lease(point: str, outcomes: Outcomes[str, Outcome]) -> None:
    found = outcomes.of(point)
    doubt = point in {"append:4:after", "spec:6:after", "tool:2:before", "tool:2:after"}
    doubt = doubt or point == "append:5:before"
    assert found.session["status"] == ("waiting" if doubt else "completed")
    assert found.verified["status"] == "completed"
    assert found.after == found.before
    assert found.sent_after == found.sent_before
    assert found.sent_after.count("create_reminder") == DELIVERED[point]
    frames = [frame.data for frame in found.reader.durable]
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
    assert frames[: len(found.after)] == found.after
    assert seen(frames).count("turn.ended") == 1
    assert next(f["data"]["epoch"] for f in frames if f["type"] == "session.claimed") in {1, 2}
