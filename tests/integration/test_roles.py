"""Two APIs and two workers over one Postgres and one Redis; each may go while the rest goes on."""

import asyncio

import pytest

from tests.integration.client import Reader
from tests.integration.plans import Stepwise, sums
from tests.integration.stack import Stacks, seen
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.waiting import until

SESSIONS = 24


@pytest.mark.slow
@pytest.mark.req("OPS-4", "STATE-4", "API-3", "API-4")
async def test_two_and_two_and_one_of_each_leaves(stacks: Stacks) -> None:
    """Sessions are made through one API and read through the other, whoever runs them."""
    plan = Stepwise(*sums(4))
    plan.holds[2] = Hold()
    env = {"SUREFOOT_WORKER_SLOTS": str(SESSIONS // 2), "SUREFOOT_DRAIN_S": "1"}
    async with (
        ScriptedModel(plan) as model,
        stacks.open(model=model.base_url, lease_s=15, env=env) as stack,
    ):
        apis = [await stack.start("api"), await stack.start("api")]
        workers = [await stack.start("worker"), await stack.start("worker")]
        clients = [stack.client(api) for api in apis]
        ids = [await clients[n % 2].create(f"run {n}") for n in range(SESSIONS)]
        urls = [[api.url for api in apis], [api.url for api in reversed(apis)]]
        readers = [Reader(i, lambda n=n: urls[n % 2]) for n, i in enumerate(ids)]  # type: ignore[misc]

        async def both_are_full() -> bool:
            rows = await stack.rows("select owner, count(*) from sessions group by owner")
            return {row["owner"] for row in rows} == {w.worker for w in workers}

        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.run())
            await until(both_are_full, timeout_s=60, what="both workers have half of them")
            await until(lambda: plan.asked.total() == 3 * SESSIONS, timeout_s=60)
            workers[0].terminate()
            apis[0].terminate()
            assert await workers[0].wait() == 0
            assert await apis[0].wait() == 0
            plan.holds[2].release()
            for session_id in ids:
                assert (await clients[1].settled(session_id))["status"] == "completed"
        ran = set()
        for reader in readers:
            events = await clients[1].events(reader.session_id)
            assert [(f.seq, f.data) for f in reader.durable] == [(e["seq"], e) for e in events]
            assert seen(events).count("turn.ended") == 1
            ran |= {e["data"]["worker"] for e in events if e["type"] == "session.claimed"}
        assert ran == {w.worker for w in workers}
