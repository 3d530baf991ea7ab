"""`/readyz` tells the truth, in bounded time, and says what to do; a worker has it too if asked."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from app.devstack import (
    PostgresHandle,
    ValkeyHandle,
    embedded_postgres_server,
    embedded_valkey_server,
)
from tests.integration.client import Json
from tests.integration.process import Process
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stack, Stacks, free_port
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.servers import Databases, server_folder
from tests.waiting import until

BOUND_S = 10.0
"""An answer takes two seconds at most; the rest is for a busy machine."""


async def ready(url: str) -> tuple[int, Json]:
    """Ask a process."""
    began = time.monotonic()
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        answer = await client.get("/readyz")
    assert time.monotonic() - began < BOUND_S
    shown: Json = answer.json()
    return answer.status_code, shown


async def becomes(url: str, status: int, *problems: str) -> Json:
    """Return the answer once it is this one."""
    found: tuple[int, Json] = (0, {})

    async def so() -> bool:
        nonlocal found
        found = await ready(url)
        return found[0] == status and {p["check"] for p in found[1]["problems"]} == set(problems)

    try:
        await until(so, timeout_s=60)
    except TimeoutError:
        raise AssertionError(f"not {status} {problems} but {found}") from None
    assert all(p["detail"] for p in found[1]["problems"])
    return found[1]


async def with_health(stack: Stack) -> tuple[Process, str]:
    """Start a worker that listens for its health."""
    port = free_port()
    worker = await stack.start("worker", env={"SUREFOOT_HEALTH_PORT": str(port)})
    return worker, f"http://127.0.0.1:{port}"


@pytest.mark.req("OPS-5", "OPS-4")
async def test_the_listener_of_a_worker(stacks: Stacks) -> None:
    async with stacks.open() as stack:
        _, url = await with_health(stack)
        body = await becomes(url, 200)
        assert body["worker"] is True
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/healthz")).json()["status"] == "ok"
            assert "surefoot_sessions_owned" in (await client.get("/metrics")).text
            assert (await client.head("/readyz")).content == b""
            for method, path in (("GET", "/v1/sessions"), ("POST", "/healthz")):
                answer = await client.request(method, path)
                assert (answer.status_code, answer.json()["type"]) == (
                    404,
                    "/problems/no-such-route",
                )


@pytest.mark.req("OPS-5")
async def test_a_schema_that_is_lacking(stacks: Stacks) -> None:
    async with stacks.open() as stack:
        api = await stack.start("api")
        _, worker = await with_health(stack)
        (row,) = await stack.rows("delete from alembic_version returning version_num")
        for url in (api.url, worker):
            body = await becomes(url, 503, "schema")
            assert "surefoot migrate" in body["problems"][0]["detail"]
        await stack.rows("insert into alembic_version values ($1)", row["version_num"])
        for url in (api.url, worker):
            await becomes(url, 200)


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresHandle]:
    with server_folder() as folder:
        async with embedded_postgres_server(folder, durable=False) as handle:
            yield handle


def _everyone(pid: int) -> list[int]:
    """Return a server's processes: each connection has its own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@asynccontextmanager
async def frozen(postgres: PostgresHandle) -> AsyncIterator[None]:
    """Stop Postgres: it refuses nothing and answers nothing."""
    os.kill(postgres.pid, signal.SIGSTOP)  # first, so that it starts no more of them
    everyone = _everyone(postgres.pid)
    _send(everyone, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(everyone, signal.SIGCONT)


def _send(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # an autovacuum that has just ended
            os.kill(pid, what)


@pytest.mark.req("OPS-5", "STATE-1")
async def test_a_database_that_is_gone_or_hangs(
    stacks: Stacks, postgres: PostgresHandle, tmp_path: Path
) -> None:
    own = replace(stacks, databases=Databases(postgres.dsn), folder=tmp_path)
    async with own.open() as stack:
        api = await stack.start("api")
        _, worker = await with_health(stack)
        async with frozen(postgres):
            for url, more in ((api.url, ()), (worker, ("worker",))):
                body = await becomes(url, 503, "database", *more)
                assert body["schema"] is False
                assert "SUREFOOT_DATABASE_URL" in body["problems"][0]["detail"]
            async with httpx2.AsyncClient(base_url=api.url) as client:
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/metrics")).status_code == 200
        for url in (api.url, worker):
            await becomes(url, 200)
        await postgres.stop()
        await becomes(api.url, 503, "database")
        await postgres.start()
        for url in (api.url, worker):
            await becomes(url, 200)


@pytest.mark.req("OPS-5", "STATE-2")
async def test_without_redis_it_is_ready_and_says_what_is_slower(stacks: Stacks) -> None:
    async with embedded_valkey_server() as valkey:
        await _without_redis(replace(stacks, redis_url=valkey.url), valkey)


async def _without_redis(own: Stacks, valkey: ValkeyHandle) -> None:
    async with own.open() as stack:
        process = await stack.start("all")
        assert (await becomes(process.url, 200))["degraded"] is False
        await valkey.kill()
        assert (await becomes(process.url, 200, "redis"))["degraded"] is True
        await valkey.start()
        await becomes(process.url, 200)
        os.kill(valkey.pid, signal.SIGSTOP)
        await becomes(process.url, 200, "redis")
        os.kill(valkey.pid, signal.SIGCONT)
        await becomes(process.url, 200)


@pytest.mark.req("OPS-5")
async def test_a_loop_that_was_blocked(stacks: Stacks) -> None:
    """Stopped for a while, as by too little CPU; it is told for some seconds, then forgotten."""
    async with stacks.open(lease_s=2) as stack:
        api = await stack.start("api")
        api.freeze()
        await asyncio.sleep(1.5)
        api.thaw()
        body = await becomes(api.url, 503, "loop")
        assert body["loop_lag_s"] > 1
        await becomes(api.url, 200)


@pytest.mark.req("OPS-5", "OPS-4")
async def test_a_process_that_drains(stacks: Stacks) -> None:
    """It answers meanwhile: that is when a balancer asks."""
    script = by_text({"go": [SLOW, text("done")]})
    async with (
        ScriptedModel(script) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env={"SUREFOOT_DRAIN_S": "30"}) as stack,
    ):
        hold = tools.hold_before("slow")
        api = await stack.start("api", env={"SUREFOOT_LINGER_S": "30"})
        worker, url = await with_health(stack)
        client = stack.client(api)
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        await client.create("go")
        async with asyncio.timeout(60):
            await tools.called()
        for process, address in ((worker, url), (api, api.url)):
            process.terminate()
            body = await becomes(address, 503, "draining")
            assert (body["ready"], body["draining"]) == (False, True)
        hold.release()
        assert await worker.wait() == 0
        api.terminate()  # a second signal does not linger
        await api.wait()
