"""Create a session, look at it, list them, read the trace."""

import asyncio
import json

import httpx2
import pytest

from app.api.routes import trace
from app.core.lifecycle import StopReason
from tests.api.conftest import create
from tests.fakes.api_world import World
from tests.waiting import until


@pytest.mark.req("API-1")
async def test_create_answers_at_once(client: httpx2.AsyncClient, world: World) -> None:
    answer = await client.post("/v1/sessions", json={"task": "hi", "metadata": {"a": "b"}})
    session = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
    assert session["status"] == "queued"
    assert session["metadata"] == {"a": "b"}
    assert session["last_seq"] == 2
    assert world.hub.nudged == [session["id"]]


@pytest.mark.req("API-2")
async def test_poll(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id, "42")
    session = (await client.get(f"/v1/sessions/{session_id}")).json()
    assert session["status"] == "completed"
    assert session["stop_reason"] == "final_answer"
    assert session["result"]["text"] == "42"


@pytest.mark.req("API-2")
async def test_events_are_the_written_bytes(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.work(session_id, 3)
    path = f"/v1/sessions/{session_id}/events"
    first = (await client.get(path, params={"limit": 2})).json()
    assert [e["seq"] for e in first["data"]] == [1, 2]
    assert first["next"] == 2
    rest = await client.get(path, params={"after": 2})
    assert [e["seq"] for e in rest.json()["data"]] == [3, 4, 5]
    assert rest.json()["next"] is None
    written = [e.payload.partition(b"|")[2] for e in world.store.events[session_id][2:]]
    assert rest.content == b'{"data":[' + b",".join(written) + b'],"next":null}'
    exact = (await client.get(path, params={"after": 2, "limit": 3})).json()
    assert exact["next"] is None
    assert (await client.get(path, params={"after": 99})).json() == {"data": [], "next": None}


@pytest.mark.req("API-2")
async def test_list_pages_newest_first(client: httpx2.AsyncClient, world: World) -> None:
    made = [await create(client, f"task {n}") for n in range(3)]
    newest = sorted(made, reverse=True)
    await world.finish(made[0])
    first = (await client.get("/v1/sessions", params={"limit": 2})).json()
    assert [s["id"] for s in first["data"]] == newest[:2]
    rest = (await client.get("/v1/sessions", params={"after": first["next"]})).json()
    assert [s["id"] for s in rest["data"]] == newest[2:]
    assert rest["next"] is None
    done = (await client.get("/v1/sessions", params={"status": "completed"})).json()
    assert [s["id"] for s in done["data"]] == [made[0]]
    with_tool = (await client.get("/v1/sessions", params={"tool": "calculate"})).json()
    assert len(with_tool["data"]) == 3


async def test_prefer_wait(client: httpx2.AsyncClient, world: World) -> None:
    async def worker() -> None:
        await until(lambda: bool(world.states))
        await world.finish(next(iter(world.states)))

    async with asyncio.TaskGroup() as group:
        group.create_task(worker())
        answer = await client.post(
            "/v1/sessions", json={"task": "hi"}, headers={"Prefer": "respond-async, wait=5"}
        )
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=5"
    assert answer.json()["status"] == "completed"
    assert answer.headers["location"].endswith(answer.json()["id"])


async def test_prefer_wait_runs_out(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/sessions", json={"task": "hi"}, headers={"Prefer": "wait=0"})
    assert answer.status_code == 201
    assert answer.json()["status"] == "queued"


@pytest.mark.case("C076")
async def test_prefer_wait_ends_when_draining(client: httpx2.AsyncClient, world: World) -> None:
    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        asking = group.create_task(
            client.post("/v1/sessions", json={"task": "hi"}, headers={"Prefer": "wait=60"})
        )
        await until(lambda: bool(world.states))
        world.draining.set()
        assert (await asking).status_code == 201


@pytest.mark.req("API-8")
async def test_cancel_settles(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.work(session_id)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.post(f"/v1/sessions/{session_id}/cancel"))
        await until(lambda: bool(world.store.inboxes[session_id]))
        await world.finish(session_id, "", reason=StopReason.CANCELLED)
        answer = await asking
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    again = await client.post(f"/v1/sessions/{session_id}/cancel", json={})
    assert again.status_code == 200
    assert again.json()["status"] == "cancelled"


@pytest.mark.req("API-7")
@pytest.mark.case("C084")
async def test_message_by_policy(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    path = f"/v1/sessions/{session_id}/messages"
    busy = await client.post(path, json={"text": "more"})
    assert busy.status_code == 409
    assert busy.json()["type"] == "/problems/session-busy"
    queued = await client.post(path, json={"text": "more", "when_busy": "enqueue"})
    assert queued.status_code == 202
    assert queued.json()["receipt"] == "enqueued"
    assert (
        json.loads(world.store.inboxes[session_id][0].payload.partition(b"|")[2])["text"] == "more"
    )
    await world.finish(session_id)
    started = await client.post(path, json={"text": "again"})
    assert (started.status_code, started.json()["receipt"]) == (202, "started")


@pytest.mark.req("API-4", "LOOP-13")
async def test_resume(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id, reason=StopReason.MAX_STEPS)
    path = f"/v1/sessions/{session_id}/resume"
    assert (await client.post(path)).json()["type"] == "/problems/limits-not-raised"
    raised = await client.post(path, json={"limits": {"max_steps": 20}})
    assert raised.status_code == 202
    told = json.loads(world.store.inboxes[session_id][0].payload.partition(b"|")[2])
    assert told["limits"]["max_steps"] == 20


async def test_close(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.post(f"/v1/sessions/{session_id}/close"))
        await until(lambda: bool(world.store.inboxes[session_id]))
        await world.close(session_id)
        answer = await asking
    assert (answer.status_code, answer.json()["status"]) == (200, "closed")
    assert (await client.post(f"/v1/sessions/{session_id}/close")).status_code == 200
    told = await client.post(f"/v1/sessions/{session_id}/messages", json={"text": "x"})
    assert (told.status_code, told.json()["type"]) == (409, "/problems/session-ended")


async def test_verification_of_nothing(client: httpx2.AsyncClient) -> None:
    session_id = await create(client)
    answer = await client.post(
        f"/v1/sessions/{session_id}/verifications",
        json={"call_id": "t1_c1_1", "outcome": "happened", "output": {"a": 1}},
    )
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/verification-not-pending"


async def test_a_page_of_large_events_ends_early(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await create(client)
    path = f"/v1/sessions/{session_id}/events"
    whole = (await client.get(path)).json()
    assert whole["next"] is None
    monkeypatch.setattr(trace, "PAGE_BYTES", 1)
    seen: list[object] = []
    after: int | None = 0
    while after is not None:
        found = (await client.get(path, params={"after": after, "limit": 50})).json()
        assert len(found["data"]) == 1
        seen += found["data"]
        after = found["next"]
    assert seen == whole["data"]
    assert len(seen) > 1
