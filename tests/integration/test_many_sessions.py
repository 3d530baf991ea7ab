"""Two hundred sessions at once, each with a reader: nothing is held while a model is awaited."""

import asyncio
import statistics
import time
from collections import Counter

import pytest

from tests.integration.client import Client, Reader
from tests.integration.plans import Stepwise, sums
from tests.integration.stack import Stack, Stacks
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

pytestmark = pytest.mark.alone

POOL = 10
STATES = """
select coalesce(state, '') as state, count(*) as n from pg_stat_activity
where datname = current_database() and application_name = 'surefoot' group by 1
"""


async def connections(stack: Stack) -> Counter[str]:
    """Return the service's connections to the database by what they do."""
    return Counter({row["state"]: row["n"] for row in await stack.rows(STATES)})


async def busiest(stack: Stack, samples: int) -> Counter[str]:
    """Return the most connections seen in each state."""
    most: Counter[str] = Counter()
    for _ in range(samples):
        most |= await connections(stack)
    return most


@pytest.mark.req("API-3", "OPS-4")
async def test_two_hundred_sessions_with_readers_on_a_pool_of_ten(stacks: Stacks) -> None:
    plan = Stepwise(*sums(2))
    plan.holds[1] = Hold()
    async with (
        ScriptedModel(plan) as model,
        stacks.open(model=model.base_url, env={"SUREFOOT_POOL_SIZE": str(POOL)}) as stack,
    ):
        client = stack.client(await stack.start("all"))
        ids = [await client.create(f"run {n}") for n in range(200)]
        readers = [Reader(session_id, lambda: [client.url]) for session_id in ids]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.run())
            await until(
                lambda: plan.asked.total() == 400 and all(len(r.durable) > 10 for r in readers),
                timeout_s=30,
            )
            most = await busiest(stack, 20)
            assert most.total() <= POOL + 1, "and that which renews the lease"
            assert not {state for state in most if state.startswith("idle in transaction")}
            assert most["active"] <= 2
            plan.holds[1].release()
        for reader in readers:
            assert reader.connections == 1
            assert reader.durable[-1].type == "turn.ended"
            seqs = [frame.seq for frame in reader.durable]
            assert seqs == list(range(1, len(seqs) + 1))
        ended = await stack.rows("select status, count(*) from sessions group by 1")
        assert [tuple(row) for row in ended] == [("completed", 200)]
        assert set(plan.asked.values()) == {1}


@pytest.mark.req("API-3", "SAFE-5")
@pytest.mark.case("C122")
async def test_open_streams_leave_the_pool_to_others(stacks: Stacks) -> None:
    """Fifty streams on slow runs, fifty on sessions that wait for a person, a pool of five."""
    slow = Stepwise(("slow", {"sec": 60}))
    paying = Stepwise(("pay", {"amount": 5}))
    async with (
        ScriptedModel(lambda r, n: (paying if "pay" in str(r["messages"][1]) else slow)(r, n)) as m,
        ScriptedTools() as tools,
        stacks.open(model=m.base_url, lease_s=2, env={"SUREFOOT_POOL_SIZE": "5"}) as stack,
    ):
        client = stack.client(await stack.start("api"))
        first = await stack.start("worker")
        await client.register(*tools.specs())
        acts = tools.hold_before("pay")
        limits = {"tool_timeout_s": 1.0}
        waiting = [await client.create("pay", limits=limits) for _ in range(50)]
        await acts.reached()
        await until(lambda: sum(d.tool == "pay" for d in tools.received) == 50)
        first.kill()
        await stack.start("worker")
        running = [await client.create("slow", limits={"tool_timeout_s": 60}) for _ in range(50)]
        await until(lambda: sum(d.tool == "slow" for d in tools.received) == 50)
        for session_id in waiting:
            await client.reached(session_id, "waiting")
        readers = [Reader(i, lambda: [client.url]) for i in (*running, *waiting)]
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(reader.run()) for reader in readers]
            await until(lambda: all(len(r.durable) > 5 for r in readers))
            took = await _times_of_others(client, running[0])
            most = await busiest(stack, 20)
            for task in reading:
                task.cancel()
        assert statistics.quantiles(took, n=100)[98] < 1.0
        assert most.total() <= 5 * 2 + 1, "and that which renews the lease"
        assert most["active"] <= 2
        assert not {state for state in most if state.startswith("idle in transaction")}


async def _times_of_others(client: Client, session_id: str) -> list[float]:
    paths = (f"/v1/sessions/{session_id}", "/v1/sessions?limit=5", "/v1/tools", "/healthz")
    took: list[float] = []
    for n in range(100):
        began = time.monotonic()
        await client.get(paths[n % len(paths)])
        took.append(time.monotonic() - began)
    return took
