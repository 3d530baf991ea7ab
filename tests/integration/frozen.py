"""A worker that is stopped at a point, stays so past its lease, and goes on after a takeover."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from typing_extensions import override

from tests.integration.client import Client, Json, Reader
from tests.integration.crash import TASK, TOOLS, careful
from tests.integration.killable import Action
from tests.integration.stack import Stack, Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Case:
    """Where the worker is stopped and how, and which mechanism it lacks."""

    point: str
    action: Action = "stop"
    without: tuple[str, ...] = ()

    @override
    def __str__(self) -> str:
        """Name the case."""
        return "-".join([self.point, self.action, *self.without])


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


async def run(stacks: Stacks, case: Case) -> Outcome:
    """Stop a worker at a point, let another finish its session, and let the first go on."""
    point = case.point
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(careful))
        tools = await held.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"}
        stack = await held.enter_async_context(stacks.open(model=model.base_url, env=env))
        api = await stack.start("api")
        stopped = await stack.start("worker", point=point, action=case.action, without=case.without)
        client = stack.client(api)
        await client.register(*tools.specs()[:2])
        session_id = await client.create(TASK, tools=TOOLS)
        reader = Reader(session_id, lambda: [api.url])
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run(timeout_s=90))
            await until(lambda: stopped.frozen, timeout_s=60, what=f"stopped at {point}")
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
