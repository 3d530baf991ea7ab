"""`Idempotency-Key` on every POST that has an effect."""

import asyncio

import httpx2
import pytest

from app.core.lifecycle import StopReason
from tests.api.conftest import create
from tests.fakes.api_world import World
from tests.waiting import until

KEY = {"Idempotency-Key": "k-1"}
pytestmark = [pytest.mark.req("API-11"), pytest.mark.case("C068")]


async def test_create_once(client: httpx2.AsyncClient, world: World) -> None:
    async def post() -> httpx2.Response:
        return await client.post("/v1/sessions", json={"task": "a", "tools": []}, headers=KEY)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(post()) for _ in range(10)]
    answers = [task.result() for task in tasks]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 9
    assert len(world.store.rows) == 1
    spaced = await client.post(
        "/v1/sessions",
        content=b'{ "tools": [],  "task": "a" }',
        headers={**KEY, "content-type": "application/json"},
    )
    assert spaced.content == answers[0].content
    other = await client.post("/v1/sessions", json={"task": "b"}, headers=KEY)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


async def test_message_once(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id)
    path = f"/v1/sessions/{session_id}/messages"
    first = await client.post(path, json={"text": "more"}, headers=KEY)
    again = await client.post(path, json={"text": "more"}, headers=KEY)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.content == again.content
    assert len(world.store.inboxes[session_id]) == 1
    other = await create(client)
    elsewhere = await client.post(
        f"/v1/sessions/{other}/messages", json={"text": "more"}, headers=KEY
    )
    assert elsewhere.status_code == 422


async def test_resume_once(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id, reason=StopReason.MAX_STEPS)
    path, body = f"/v1/sessions/{session_id}/resume", {"limits": {"max_steps": 20}}
    first = await client.post(path, json=body, headers=KEY)
    again = await client.post(path, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (202, 202)
    assert len(world.store.inboxes[session_id]) == 1


async def test_invoke_once(client: httpx2.AsyncClient, world: World) -> None:
    path, body = "/v1/tools/calculate/invoke", {"arguments": {"expression": "1"}}
    world.tool_port.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(client.post(path, json=body, headers=KEY))
        await until(lambda: bool(world.tool_port.requests))
        meanwhile = await client.post(path, json=body, headers=KEY)
        world.tool_port.gate.set()
    assert meanwhile.status_code == 409
    assert meanwhile.json()["type"] == "/problems/idempotency-key-in-flight"
    assert meanwhile.headers["retry-after"] == "1"
    again = await client.post(path, json=body, headers=KEY)
    assert again.content == first.result().content
    assert len(world.tool_port.requests) == 1


async def test_a_failed_request_is_over_too(client: httpx2.AsyncClient, world: World) -> None:
    path = "/v1/tools/calculate/invoke"
    body: dict[str, object] = {"arguments": {}}
    world.tool_port.breaks = ZeroDivisionError()
    first = await client.post(path, json=body, headers=KEY)
    again = await client.post(path, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (500, 500)
    assert first.content == again.content
    assert first.headers["content-type"] == again.headers["content-type"]
    assert len(world.tool_port.requests) == 1


async def test_register_once(client: httpx2.AsyncClient) -> None:
    first = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    again = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "é"])
async def test_keys_that_are_none(client: httpx2.AsyncClient, world: World, key: str) -> None:
    answer = await client.post(
        "/v1/sessions", json={"task": "a"}, headers=[(b"Idempotency-Key", key.encode("latin-1"))]
    )
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-parameter")
    assert world.store.rows == {}
