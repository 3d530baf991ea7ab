"""Two thousand sessions that wait for a person: no slot of a worker, and no memory of a process."""

import asyncio
import re

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.process import Process
from tests.integration.raw import many_files
from tests.integration.scripted import last_said
from tests.integration.stack import Stack, Stacks, free_port
from tests.scripted.answers import Answer, call, text
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

FIRST, THEN = 400, 1600
"""After the first the caches and pools of the processes are as large as they get."""

KB = 1024
SLOTS = 64


def script(request: Body, _n: int) -> Answer:
    """Pay for a task, answer a greeting."""
    said, done = last_said(request)
    return text("done") if done or said == "hello" else call("pay", amount=5)


async def _held(process: Process) -> int:
    """Return how many bytes Python has allocated in a process, as it tells when it is asked."""
    before = process.text().count("traced.bytes")
    process.signal(10)  # SIGUSR1
    await until(lambda: process.text().count("traced.bytes") > before, timeout_s=60)
    return int(re.findall(r"traced.bytes (\d+)", process.text())[-1])


async def _park(stack: Stack, client: Client, tools: ScriptedTools, heir: Process, n: int) -> None:
    """Let so many sessions wait for a verification: their owner dies in the middle of the call."""
    heir.freeze()
    (row,) = await stack.rows("select count(*) as n from sessions where status = 'waiting'")
    already = int(row["n"])
    owner = await stack.start("worker", env={"SUREFOOT_WORKER_SLOTS": "2000"})
    room = asyncio.Semaphore(16)

    async def create() -> None:
        async with room:
            await client.create("go")

    async with asyncio.TaskGroup() as group:
        for _ in range(n):
            group.create_task(create())
    await _count(stack, "select count(*) as n from sessions where phase = 'ACT'", n)
    owner.kill()
    await owner.wait()
    heir.thaw()
    await _count(
        stack, "select count(*) as n from sessions where timer_at is not null and owner is null", n
    )
    await stack.rows("update sessions set timer_at = now() where timer_at is not null")
    await _count(
        stack, "select count(*) as n from sessions where pending_kind is not null", already + n
    )
    assert len(tools.received) <= already + n


async def _count(stack: Stack, statement: str, wanted: int) -> None:
    async def so() -> bool:
        (row,) = await stack.rows(statement)
        return int(row["n"]) >= wanted

    await until(so, timeout_s=90, what=f"{statement}: {wanted}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("OPS-4", "API-1")
async def test_waiting_costs_nothing(stacks: Stacks) -> None:
    many_files()
    async with (
        ScriptedModel(script) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, lease_s=4) as stack,
    ):
        tools.hold_before("pay")
        port = free_port()
        traced = ("traced",)
        api = await stack.start("api", without=traced)
        env = {"SUREFOOT_HEALTH_PORT": str(port), "SUREFOOT_WORKER_SLOTS": str(SLOTS)}
        heir = await stack.start("worker", env=env, without=traced)
        client = stack.client(api)
        (pay,) = [spec for spec in tools.specs() if spec["name"] == "pay"]
        await client.register({**pay, "timeout_s": 120})
        await _park(stack, client, tools, heir, FIRST)
        await _settles(port)
        before = {p.role: await _held(p) for p in (api, heir)}
        await _park(stack, client, tools, heir, THEN)
        await _settles(port)
        grown = {p.role: await _held(p) - before[p.role] for p in (api, heir)}
        print({role: f"{n / THEN:.0f} bytes a session" for role, n in grown.items()})
        assert all(n < THEN * KB for n in grown.values()), grown
        one_more = await client.create("hello")
        assert (await client.settled(one_more))["status"] == "completed"


async def _settles(port: int) -> None:
    """Return when the worker runs nothing."""

    async def nothing() -> bool:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            shown = (await client.get("/metrics")).text
        return re.search(r"^surefoot_sessions_owned 0(\.0)?$", shown, re.MULTILINE) is not None

    await until(nothing, timeout_s=60, what="it owns none")
