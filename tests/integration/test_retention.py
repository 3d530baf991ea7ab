"""Retention and erasure with real processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.storage.chain import verify_chain
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from tests.integration.client import Client
from tests.integration.plans import by_task
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, call, text
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import plain, results_so_far
from tests.scripted.tools import ScriptedTools
from tests.waiting import until


def slowly(request: Body, _n: int) -> Answer:
    return text("done") if results_so_far(request) else call("slow", sec=1)


def paying(request: Body, _n: int) -> Answer:
    return text("done") if results_so_far(request) else call("pay", amount=5)


PLANS = by_task({"plain": plain, "slowly": slowly, "paying": paying})


@asynccontextmanager
async def standing(stacks: Stacks) -> AsyncIterator[tuple[Stack, ScriptedTools]]:
    env = {"SUREFOOT_RETENTION_DAYS": "30"}
    async with (
        ScriptedModel(PLANS) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env=env) as stack,
    ):
        yield stack, tools


async def gone(client: Client, session_id: str) -> bool:
    return (await client.http.get(f"/v1/sessions/{session_id}")).status_code == 404


@pytest.mark.req("STATE-9")
@pytest.mark.case("C126")
async def test_old_ended_sessions_leave_and_one_that_waits_stays(stacks: Stacks) -> None:
    async with standing(stacks) as (stack, tools):
        api, worker = await stack.start("api"), await stack.start("worker")
        client = stack.client(api)
        await client.register(*tools.specs())
        ended = [await client.create("plain") for _ in range(3)]
        for session_id in ended:
            await client.settled(session_id)
        hold = tools.hold_before("pay")
        waiting = await client.create("paying", limits={"tool_timeout_s": 5})
        await tools.called()
        worker.kill()
        hold.release()
        await stack.lease_over(worker)
        second = await stack.start("worker")
        await client.reached(waiting, "waiting", timeout_s=60)
        second.terminate()
        await second.wait()
        await stack.rows(
            "update sessions set updated_at = now() - interval '31 days',"
            " ended_at = ended_at - interval '31 days' where id <> $1",
            ended[0],
        )
        await stack.start("worker")
        await until(lambda: gone(client, ended[1]), timeout_s=60)
        await until(lambda: gone(client, ended[2]), timeout_s=60)
        left = {
            row["id"] for row in await stack.rows("select distinct session_id as id from events")
        }
        assert left == {ended[0], waiting}
        call_id = (await client.session(waiting))["pending"]["calls"][0]["call_id"]
        await client.verify(waiting, call_id, "happened")
        assert (await client.reached(waiting, "completed"))["result"]["text"] == "done"


@pytest.mark.req("STATE-9", "API-11")
@pytest.mark.parametrize("verb", ["cancel", "close", "replay"])
async def test_what_was_answered_under_a_key_is_erased_with_its_session(
    stacks: Stacks, verb: str
) -> None:
    async with standing(stacks) as (stack, tools):
        client = stack.client(await stack.start("all"))
        await client.register(*tools.specs())
        session_id = await client.create("plain secret", metadata={"who": "me"})
        await client.settled(session_id)
        path, headers = f"/v1/sessions/{session_id}/{verb}", {"Idempotency-Key": "its-own"}
        first = await client.http.post(path, json={}, headers=headers)
        assert first.status_code == 200, first.text
        assert (await client.http.delete(f"/v1/sessions/{session_id}")).status_code == 204
        again = await client.http.post(path, json={}, headers=headers)
        assert (again.status_code, again.json()["type"]) == (409, "/problems/session-erased")
        kept = await stack.rows("select body from idempotency where key = 'its-own'")
        assert [bytes(row["body"]) for row in kept] == [b""]


@pytest.mark.req("STATE-9")
@pytest.mark.parametrize("task", ["plain", "slowly"])
async def test_erasing_a_session(stacks: Stacks, task: str) -> None:
    """An open turn is cancelled, the content is gone, the chain still verifies."""
    async with standing(stacks) as (stack, tools):
        client = stack.client(await stack.start("all"))
        await client.register(*tools.specs())
        hold = tools.hold_before("slow")
        headers = {"Idempotency-Key": "one"}
        body = {"task": f"{task} secret", "metadata": {"who": "me"}}
        made = await client.http.post("/v1/sessions", json=body, headers=headers)
        session_id = made.json()["id"]
        if task == "slowly":
            await tools.called()
        else:
            await client.settled(session_id)
        erased = await client.http.delete(f"/v1/sessions/{session_id}")
        hold.release()
        assert erased.status_code == 204, erased.text
        shown = await client.session(session_id)
        status = {"plain": "completed", "slowly": "cancelled"}[task]
        assert (shown["status"], shown["erased"], shown["metadata"]) == (status, True, {})
        assert shown["result"] is None
        again = await client.http.post("/v1/sessions", json=body, headers=headers)
        trace = await client.http.get(f"/v1/sessions/{session_id}/events")
        for refused in (again, trace):
            assert refused.json()["type"] == "/problems/session-erased"
        await _verified(stack, session_id)


async def _verified(stack: Stack, session_id: str) -> None:
    (row,) = await stack.rows("select * from sessions where id = $1", session_id)
    assert row["data_key"] == b""
    chain = MasterKeys(parse_keys(stack.env["SUREFOOT_ENCRYPTION_KEYS"])).chain(
        session_id, row["key_id"]
    )
    async with Engine(stack.dsn) as engine:
        events = await PostgresJournal(engine).read(session_id, 0, 500)
    head, head_hash = row["head"], row["head_hash"]
    assert len(events) == head > 2
    assert verify_chain(events, chain, head=head, head_hash=head_hash, opener=None) is None
