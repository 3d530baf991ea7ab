"""`Idempotency-Key` over real processes: retries at once, after a restart, and after a crash."""

import asyncio

import httpx2
import pytest

from app.runtime.sessions.idempotency import Attempt
from app.storage.engine import Engine
from app.storage.keys import MasterKeys
from app.storage.sessions import PostgresSessions
from tests.integration.client import Client, Json
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stack, Stacks
from tests.making import new_session
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools

SCRIPT = by_text({"go": [text("done")], "wait": [SLOW, text("done")]})
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


async def _post(client: Client, path: str, body: Json | None, key: str = KEY) -> httpx2.Response:
    return await client.http.post(path, json=body, headers={"Idempotency-Key": key})


@pytest.mark.case("C068")
@pytest.mark.req("API-11", "OPS-4")
async def test_ten_at_once_through_two_processes_and_one_after_a_restart(stacks: Stacks) -> None:
    async with ScriptedModel(SCRIPT) as model, stacks.open(model=model.base_url) as stack:
        apis = [await stack.start("api"), await stack.start("api")]
        await stack.start("worker")
        clients = [stack.client(api) for api in apis]
        async with asyncio.TaskGroup() as group:
            tries = [
                group.create_task(_post(clients[n % 2], "/v1/sessions", {"task": "go"}))
                for n in range(10)
            ]
        first = tries[0].result()
        assert {t.result().status_code for t in tries} == {201}
        assert {t.result().content for t in tries} == {first.content}
        for api in apis:
            api.kill()
        client = stack.client(await stack.start("api"))
        again = await _post(client, "/v1/sessions", {"task": "go"}, f'"{KEY}"')
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["location"] == first.headers["location"]
        other = await _post(client, "/v1/sessions", {"task": "other"})
        assert (other.status_code, other.json()["type"]) == (
            422,
            "/problems/idempotency-key-reused",
        )
        await client.settled(first.json()["id"])
        assert len(await stack.rows("select 1 from sessions")) == 1
        assert model.count == 1
        await _another_tenant_has_keys_of_its_own(stack)
        stack.sound = False  # that tenant's session has a key of its own


async def _another_tenant_has_keys_of_its_own(stack: Stack) -> None:
    attempt = Attempt.of("other", KEY, "POST /v1/sessions", b"{}")
    record = attempt.record(MasterKeys({"k": b"k" * 32}), 201, b"{}", None)
    async with Engine(stack.dsn) as engine:
        assert await PostgresSessions(engine).create(new_session("other"), record) is None
    assert len(await stack.rows("select 1 from sessions")) == 2
    assert len(await stack.rows("select 1 from idempotency where key = $1", KEY)) == 2


@pytest.mark.case("C068")
@pytest.mark.req("API-11")
async def test_a_dry_run_whose_process_was_killed_is_not_made_twice(stacks: Stacks) -> None:
    """It took effect, and nobody heard so: after a while that is the answer, and stays it."""
    async with ScriptedTools() as tools, stacks.open() as stack:
        client = stack.client(await stack.start("api"))
        await client.register(*tools.specs())
        doomed = stack.client(await stack.start("api", point="tool:1:after"))
        path, body = "/v1/tools/pay/invoke", {"arguments": {"amount": 5}}
        with pytest.raises(httpx2.TransportError):
            await _post(doomed, path, body)
        assert len(tools.received) == 1
        refused = await _post(client, path, body)
        assert refused.json()["type"] == "/problems/idempotency-key-in-flight"
        await stack.rows("update idempotency set created_at = now() - interval '2 minutes'")
        for again in (await _post(client, path, body), await _post(client, path, body)):
            assert again.json()["type"] == "/problems/idempotency-key-cut-off"
        assert len(tools.received) == 1
        (row,) = await stack.rows("select status from idempotency")
        assert row["status"] == 409


@pytest.mark.case("C068")
@pytest.mark.req("API-11", "API-8")
async def test_a_cancel_whose_process_was_killed_can_be_said_again(stacks: Stacks) -> None:
    """The mark is left in flight: refused at first, taken over once no living request is so old."""
    async with (
        ScriptedModel(SCRIPT) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, lease_s=15) as stack,
    ):
        tools.hold_before("slow")
        client = stack.client(await stack.start("all"))
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        session_id = await client.create("wait")
        async with asyncio.timeout(60):
            await tools.called()
        doomed = stack.client(await stack.start("api", point="nudge:1:before"))
        path = f"/v1/sessions/{session_id}/cancel"
        with pytest.raises(httpx2.TransportError):
            await _post(doomed, path, None)
        refused = await _post(client, path, None)
        assert (refused.status_code, refused.json()["type"]) == (
            409,
            "/problems/idempotency-key-in-flight",
        )
        await stack.rows("update idempotency set created_at = now() - interval '1 minute'")
        again = await _post(client, path, None)
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")
        replayed = await _post(client, path, None)
        assert replayed.headers["idempotency-replayed"] == "true"
        assert len(await stack.rows("select 1 from inbox")) == 1
