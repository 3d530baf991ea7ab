"""Forks at the edge: how many are made at once."""

import asyncio

import httpx2
import pytest

from app.runtime.ports.journal import SealedEvent
from app.runtime.sessions.forks import AT_ONCE
from tests.api.conftest import create
from tests.fakes.api_world import World


@pytest.mark.req("STATE-7")
async def test_a_crowd_of_forks_is_made_a_few_at_a_time(
    client: httpx2.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds the whole journal in memory, however long it is."""
    session_id = await create(client)
    read, reading, most = world.store.read, 0, 0

    async def counted(
        session_id: str, after: int, limit: int, most_bytes: int | None = None
    ) -> list[SealedEvent]:
        nonlocal reading, most
        assert most_bytes is not None
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0.001)
        found = await read(session_id, after, limit, most_bytes)
        reading -= 1
        return found

    monkeypatch.setattr(world.store, "read", counted)
    path, body = f"/v1/sessions/{session_id}/fork", {"at_seq": 2, "task": "another"}
    async with asyncio.TaskGroup() as group:
        made = [group.create_task(client.post(path, json=body)) for _ in range(12)]
    assert {task.result().status_code for task in made} == {201}
    assert most == AT_ONCE


@pytest.mark.req("STATE-7", "API-8")
async def test_a_fork_has_what_the_request_does_not_change(
    client: httpx2.AsyncClient,
) -> None:
    body = {"task": "go", "metadata": {"who": "me"}, "on_disconnect": "cancel"}
    parent = (await client.post("/v1/sessions", json=body)).json()
    path = f"/v1/sessions/{parent['id']}/fork"
    made = (await client.post(path, json={"at_seq": 2, "task": "another"})).json()
    same = ("on_disconnect", "metadata", "model", "tools", "limits", "agent", "prompts", "mode")
    assert {name: made[name] for name in same} == {name: parent[name] for name in same}
    assert made["on_disconnect"] == "cancel"
