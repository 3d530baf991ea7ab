"""Postgres stopped in the middle of runs, of a recovery and of streams; each test has its own."""

import asyncio

import httpx2
import pytest
from redis.asyncio import Redis

from app.devstack import PostgresHandle
from tests.integration.client import Client, Reader
from tests.integration.plans import Stepwise, sums
from tests.integration.stack import LEASE_S, Stacks
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until


async def away(
    postgres: PostgresHandle, seconds: float, looked: asyncio.Event | None = None
) -> None:
    """Take Postgres away for so long, and until somebody has looked at what it is like without."""
    await postgres.stop()
    await asyncio.sleep(seconds)
    if looked is not None:
        await looked.wait()
    await postgres.start()


REMIND = {"title": "Weather", "time": "07:00", "text": "Take an umbrella"}
STEPS = (*sums(1), ("echo", {"text": "one"}), ("create_reminder", REMIND), *sums(4)[1:])


@pytest.mark.req("STATE-1", "STATE-4", "TOOL-10", "API-4")
@pytest.mark.parametrize("seconds", [0.2, LEASE_S + 1])
async def test_a_restart_in_mid_run_repeats_nothing(
    own: Stacks, postgres: PostgresHandle, seconds: float
) -> None:
    """One session waits for the model, one for a tool whose effect is done, when it goes."""
    plan = Stepwise(*STEPS)
    plan.holds[4] = Hold()
    async with (
        ScriptedModel(plan) as model,
        ScriptedTools() as tools,
        own.open(model=model.base_url) as stack,
    ):
        process = await stack.start("all")
        client = stack.client(process)
        await client.register(*tools.specs())
        thinking = await client.create("thinking")
        await plan.holds[4].reached()
        acts = tools.hold_after("create_reminder")
        acting = await client.create("acting")
        await acts.reached()
        reader = Reader(thinking, lambda: [client.url])
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run())
            await until(lambda: len(reader.durable) > 20)
            looked = asyncio.Event()
            outage = group.create_task(away(postgres, seconds, looked))
            await until(lambda: not postgres.running)
            plan.holds[4].release()
            acts.release()
            async with Redis.from_url(own.redis_url) as redis:  # readers must look into the journal
                await redis.client_kill_filter(_type="pubsub")
            await _answers_with_a_problem(client.http, thinking)
            await _over(outage, looked)
            for session_id in (thinking, acting):
                assert (await client.settled(session_id))["status"] == "completed"
        await _is_whole(reader, client)
        assert plan.asked == {(t, n): 1 for t in ("thinking", "acting") for n in range(7)}
        assert (sorted(tools.deliveries.values()), len(tools.effects)) == ([1] * 4, 2)
        assert process.alive


async def _over(outage: asyncio.Task[None], looked: asyncio.Event) -> None:
    looked.set()
    await outage


async def _is_whole(reader: Reader, client: Client) -> None:
    """One connection has brought everything, once."""
    events = await client.events(reader.session_id)
    assert [(f.seq, f.data) for f in reader.durable] == [(e["seq"], e) for e in events]
    assert reader.connections == 1


async def _answers_with_a_problem(http: httpx2.AsyncClient, session_id: str) -> None:
    """With the database away each request is told so, and the process is well."""
    for method, path in (
        ("GET", f"/v1/sessions/{session_id}"),
        ("GET", f"/v1/sessions/{session_id}/stream"),
        ("POST", "/v1/sessions"),
        ("POST", f"/v1/sessions/{session_id}/messages"),
    ):
        body = {"POST": {"text": "hello"}}.get(method)
        if path == "/v1/sessions":
            body = {"task": "hello"}
        response = await http.request(method, path, json=body)
        assert response.status_code == 503, (path, response.text)
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["type"] == "/problems/store-unavailable"
        assert int(response.headers["retry-after"]) >= 1
    assert (await http.get("/healthz")).status_code == 200
    assert (await http.get("/readyz")).status_code == 503


@pytest.mark.req("API-3", "API-12")
@pytest.mark.case("C063")
async def test_a_stream_never_ends_in_nothing(own: Stacks, postgres: PostgresHandle) -> None:
    plan = Stepwise(*sums(2))
    async with ScriptedModel(plan) as model, own.open(model=model.base_url) as stack:
        client = stack.client(await stack.start("all"))
        unknown = await client.http.get("/v1/sessions/ses_00000000000000000000000000/stream")
        assert unknown.status_code == 404
        assert unknown.json()["type"] == "/problems/session-not-found"
        session_id = await client.create("run")
        await client.settled(session_id)
        await postgres.stop()
        path = f"/v1/sessions/{session_id}/stream"
        for headers in ({}, {"Last-Event-ID": "3"}):
            response = await client.http.get(path, headers=headers)
            assert response.status_code == 503
            assert response.json()["type"] == "/problems/store-unavailable"
        await postgres.start()
        reader = Reader(session_id, lambda: [client.url])
        await reader.run()
        assert reader.durable[-1].type == "turn.ended"


@pytest.mark.req("STATE-4", "API-4")
@pytest.mark.case("C079")
async def test_postgres_goes_for_three_seconds_in_the_middle_of_a_recovery(
    own: Stacks, postgres: PostgresHandle
) -> None:
    plan = Stepwise(("echo", {"text": "one"}), ("create_reminder", REMIND), *sums(1))
    async with (
        ScriptedModel(plan) as model,
        ScriptedTools() as tools,
        own.open(model=model.base_url) as stack,
    ):
        client = stack.client(await stack.start("api"))
        await client.register(*tools.specs())
        first = await stack.start("worker")
        plan.holds[2] = Hold()
        ids = [await client.create(f"run {n}") for n in range(10)]
        await until(lambda: sum(plan.asked[f"run {n}", 2] for n in range(10)) == 10)
        first.kill()
        second = await stack.start("worker")
        await until(lambda: plan.asked.total() > 30, timeout_s=60)
        async with asyncio.TaskGroup() as group:
            group.create_task(away(postgres, 3))
            await until(lambda: not postgres.running)
            plan.holds[2].release()
        for session_id in ids:
            assert (await client.settled(session_id))["status"] == "completed"
        assert all(plan.asked[f"run {n}", step] == 1 for n in range(10) for step in (0, 1, 3))
        assert set(tools.deliveries.values()) == {1}
        assert len(tools.effects) == 10
        assert second.alive
