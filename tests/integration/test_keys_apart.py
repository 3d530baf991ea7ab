"""`Idempotency-Key`: one effect for a crowd of requests; keys of users are nobody else's."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.stack import Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import plain
from tests.waiting import until

pytestmark = [pytest.mark.req("API-11"), pytest.mark.case("C068")]
HOOK = {"url": "https://a.test/hook", "events": ["turn.ended"]}
CROWD = 20


async def _post(client: Client, path: str, body: object, key: str) -> httpx2.Response:
    return await client.http.post(path, json=body, headers={"Idempotency-Key": key})


@pytest.mark.req("API-15")
async def test_a_crowd_registers_one_webhook_through_two_processes(stacks: Stacks) -> None:
    async with stacks.open() as stack:
        clients = [stack.client(await stack.start("api")) for _ in range(2)]
        for key in (f"k-{n}" for n in range(5)):
            before = len((await clients[0].get("/v1/webhooks"))["data"])
            async with asyncio.TaskGroup() as group:
                tries = [
                    group.create_task(_post(clients[n % 2], "/v1/webhooks", HOOK, key))
                    for n in range(CROWD)
                ]
            answers = [t.result() for t in tries]
            made = [a for a in answers if a.status_code == 201]
            assert len({a.content for a in made}) == 1
            assert sum("idempotency-replayed" not in a.headers for a in made) == 1
            refused = {(a.status_code, a.json()["type"]) for a in answers if a not in made}
            assert refused <= {(409, "/problems/idempotency-key-in-flight")}
            listed = (await clients[1].get("/v1/webhooks"))["data"]
            assert len(listed) == before + 1
            again = await _post(clients[1], "/v1/webhooks", HOOK, f'"{key}"')
            assert (again.status_code, again.content) == (201, made[0].content)


@pytest.mark.req("API-16")
async def test_a_key_like_that_of_a_firing_is_none(stacks: Stacks) -> None:
    """Who takes the key of a firing beforehand neither prevents it nor gets its session."""
    async with ScriptedModel(plain) as model, stacks.open(model=model.base_url) as stack:
        client = stack.client(await stack.start("api"))
        at = (datetime.now(UTC) + timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        wanted = {"at": at, "session": {"task": "tick"}}
        made = await client.post("/v1/schedules", wanted, expect=201)
        key = f"schedule:{made['id']}:{at}"
        mine = await _post(client, "/v1/sessions", {"task": "mine"}, key)
        assert mine.status_code == 201
        again = await _post(client, "/v1/sessions", {"task": "mine"}, key)
        assert (again.status_code, again.content) == (201, mine.content)
        other = await _post(client, "/v1/sessions", {"task": "other"}, key)
        assert (other.status_code, repr(key) in other.json()["detail"]) == (422, True)
        await stack.start("worker")
        path = f"/v1/schedules/{made['id']}"

        async def fired() -> bool:
            return bool((await client.get(f"{path}/runs"))["data"])

        await until(fired, timeout_s=60)
        [run] = (await client.get(f"{path}/runs"))["data"]
        assert (run["outcome"], run["session_id"] == mine.json()["id"]) == ("fired", False)
        keys = await stack.rows("select key from idempotency where key like '%schedule:%'")
        assert sorted(row["key"] for row in keys) == ["\x1f" + key, key]
