"""The service behind a pooler in transaction mode, which gives each transaction another connection.

Without `SUREFOOT_POOLER=transaction` it fails: prepared statements stay on another connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.client import Client
from tests.integration.plans import by_task
from tests.integration.pooler import Pooler, pooling
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, call, text
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far

CONNECTIONS = 3
SESSIONS = 12
TOOL = {"name": "t", "kind": "client", "description": "A tool of ours.", "parameters": {}}


def summing(request: Body, _n: int) -> Answer:
    done = len(results_so_far(request))
    return text("done") if done == 3 else call("calculate", expression=f"{done} + 1")


@asynccontextmanager
async def pooled(stacks: Stacks) -> AsyncIterator[tuple[Stack, Pooler]]:
    async with (
        ScriptedModel(by_task({"sum": summing})) as model,
        stacks.open(model=model.base_url) as stack,
        pooling(stack.dsn, CONNECTIONS) as (address, pooler),
    ):
        stack.env["SUREFOOT_DATABASE_URL"] = address
        stack.env["SUREFOOT_LISTEN_DATABASE_URL"] = stack.dsn
        stack.env["SUREFOOT_POOLER"] = "transaction"
        yield stack, pooler
        for process in stack.processes:  # before the pooler goes
            process.terminate()
            await process.wait()
            assert "prepared statement" not in process.text()


@pytest.mark.slow
@pytest.mark.req("STATE-2", "OPS-4")
@pytest.mark.case("C132")
async def test_sessions_run_behind_a_transaction_pooler(stacks: Stacks) -> None:
    """Made at once, run, spoken to, read and erased: by two processes, over three connections."""
    async with pooled(stacks) as (stack, pooler):
        client = stack.client(await stack.start("api"))
        await stack.start("worker")
        await client.register(TOOL)
        async with asyncio.TaskGroup() as group:
            made = [group.create_task(client.create("sum")) for _ in range(SESSIONS)]
        ids = [one.result() for one in made]
        for session_id in ids:
            assert (await client.settled(session_id))["status"] == "completed"
            told = {"text": "sum again"}
            await client.post(f"/v1/sessions/{session_id}/messages", told, expect=202)
        for session_id in ids:
            await _whole(client, session_id)
        assert (await client.http.delete(f"/v1/sessions/{ids[0]}")).status_code == 204
        assert (await client.http.get("/readyz")).status_code == 200
        assert len(pooler.lent) == CONNECTIONS
        assert min(pooler.lent.values()) > SESSIONS


async def _whole(client: Client, session_id: str) -> None:
    session = await client.settled(session_id)
    assert (session["status"], session["turn"]) == ("completed", 2)
    events = await client.events(session_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
