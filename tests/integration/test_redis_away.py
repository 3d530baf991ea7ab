"""Redis killed, frozen, emptied, evicting, and with its subscriptions cut: it costs time only."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.devstack import ValkeyHandle, embedded_valkey_server
from tests.integration.client import Client, Reader
from tests.integration.plans import Stepwise, sums
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, args, calls, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far
from tests.waiting import until

POLLS_S = 4.0
"""Two comparisons of heads, the slowest way in which a reader learns of an event."""


@pytest.fixture
async def valkey() -> AsyncIterator[ValkeyHandle]:
    async with embedded_valkey_server() as handle:
        yield handle


@pytest.fixture
def own(stacks: Stacks, valkey: ValkeyHandle) -> Stacks:
    """Stacks over a Valkey that a test may do anything to."""
    return replace(stacks, redis_url=valkey.url)


async def is_whole(reader: Reader, client: Client) -> None:
    """The stream gave each event of the trace once, in order, to the end of the turn."""
    events = await client.events(reader.session_id)
    assert [(f.seq, f.data) for f in reader.durable] == [(e["seq"], e) for e in events]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "turn.ended"


@pytest.mark.req("STATE-2", "API-3")
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_redis_goes_in_the_middle_of_runs_and_streams(
    own: Stacks, valkey: ValkeyHandle, how: str
) -> None:
    plan = Stepwise(*sums(4))
    plan.holds[2] = Hold()
    async with ScriptedModel(plan) as model, own.open(model=model.base_url) as stack:
        client = stack.client(await stack.start("api"))
        worker = await stack.start("worker")
        ids = [await client.create(f"run {n}") for n in range(5)]
        readers = [Reader(session_id, lambda: [client.url]) for session_id in ids]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.run())
            await until(lambda: plan.asked.total() == 15)
            if how == "killed":
                await valkey.kill()
            else:
                os.kill(valkey.pid, signal.SIGSTOP)
            began = time.monotonic()
            plan.holds[2].release()
            for session_id in ids:
                assert (await client.settled(session_id))["status"] == "completed"
        assert time.monotonic() - began < 4 + POLLS_S
        for reader in readers:
            await is_whole(reader, client)
            assert reader.connections == 1
        assert set(plan.asked.values()) == {1}
        assert worker.alive
        if how == "killed":
            await valkey.start()
            await _is_used_again(stack, client, valkey)
        else:
            os.kill(valkey.pid, signal.SIGCONT)


async def _is_used_again(stack: Stack, client: Client, valkey: ValkeyHandle) -> None:
    """Deltas pass between processes through Redis alone, and hot states are kept there."""

    async def deltas_come() -> bool:
        session_id = await client.create("run again")
        reader = Reader(session_id, lambda: [client.url])
        await reader.run()
        await is_whole(reader, client)
        return any(frame.type == "delta" for frame in reader.frames)

    await until(deltas_come, timeout_s=60, what="deltas pass between processes again")
    async with Redis.from_url(valkey.url) as redis:
        assert await redis.keys("surefoot:hot:*")
    assert (await client.get("/readyz"))["redis"] is True
    assert stack.processes[0].alive


@pytest.mark.req("STATE-2")
@pytest.mark.case("C075")
async def test_emptying_redis_loses_no_pending_run(own: Stacks, valkey: ValkeyHandle) -> None:
    plan = Stepwise(*sums(1))
    async with ScriptedModel(plan) as model, own.open(model=model.base_url) as stack:
        client = stack.client(await stack.start("api"))
        ids = [await client.create(f"run {n}") for n in range(20)]
        async with Redis.from_url(valkey.url) as redis:
            await redis.flushall()
        await stack.start("worker")
        for session_id in ids:
            assert (await client.settled(session_id))["status"] == "completed"
        assert sorted(plan.asked.values()) == [1] * 40
        epochs = await stack.rows("select distinct epoch from sessions")
        assert [row["epoch"] for row in epochs] == [1]


def _five_at_a_time(request: Body, n: int) -> Answer:
    """Five sums a step, for ever: more than 64 events in five steps, so that copies are used."""
    if "tools" not in request:
        return text("so far")
    done = len(results_so_far(request))
    return calls(
        *(
            tc(f"c{n}_{i}", "calculate", args(expression=f"{done + i} * {done + i} + 1"))
            for i in range(5)
        )
    )


@pytest.mark.req("STATE-2", "LOOP-13")
@pytest.mark.case("C129")
async def test_evicted_states_are_rebuilt_and_the_policy_is_told(
    own: Stacks, valkey: ValkeyHandle
) -> None:
    async with Redis.from_url(valkey.url) as redis:
        await redis.config_set("maxmemory", "2mb")
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        async with ScriptedModel(_five_at_a_time) as model, own.open(model=model.base_url) as stack:
            process = await stack.start("all")
            client = stack.client(process)
            ids = [
                await client.create(f"run {n} " + "word " * 6000, limits={"max_steps": 5})
                for n in range(50)
            ]
            for session_id in ids:
                assert (await client.settled(session_id))["stop_reason"] == "max_steps"
            kept = len(await redis.keys("surefoot:hot:*"))
            assert 0 < kept < 50
            evicted = (await redis.info("stats"))["evicted_keys"]
            assert evicted > 0

            before = model.count
            for session_id in ids:
                raised = {"limits": {"max_steps": 6}}
                await client.post(f"/v1/sessions/{session_id}/resume", raised, expect=202)
            await until(lambda: _are_in_turn(client, ids, 2), timeout_s=60)
            resumed = [b for b in model.bodies[before:] if "tools" in b]
            assert len(resumed) == 50
            for body in resumed:
                assert sum(m["role"] == "tool" for m in body["messages"]) == 25
                assert body["messages"][1]["content"].count("word") == 6000
            assert "maxmemory-policy allkeys-lru" in process.text()


async def _are_in_turn(client: Client, ids: list[str], turn: int) -> bool:
    sessions = [await client.session(session_id) for session_id in ids]
    return all(s["turn"] == turn and s["status"] == "stopped" for s in sessions)


@pytest.mark.req("STATE-2", "API-3")
@pytest.mark.case("C131")
async def test_a_cut_subscription_costs_a_reader_two_polls_at_most(
    own: Stacks, valkey: ValkeyHandle
) -> None:
    plan = Stepwise(*sums(2))
    plan.holds[1] = Hold()
    async with ScriptedModel(plan) as model, own.open(model=model.base_url) as stack:
        client = stack.client(await stack.start("api"))
        await stack.start("worker")
        reader = Reader(await client.create("run"), lambda: [client.url])
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(reader.run())
            await until(lambda: plan.asked.total() == 2 and len(reader.durable) >= 14)
            async with Redis.from_url(valkey.url) as redis:
                assert await redis.client_kill_filter(_type="pubsub") >= 2
            plan.holds[1].release()
            await client.settled(reader.session_id)
            over = time.monotonic()
            await reading
        assert time.monotonic() - over < POLLS_S + 1
        await is_whole(reader, client)
