"""Postgres hangs: it is there, and answers nothing. Who ends a process then is not kept waiting."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.devstack import PostgresHandle
from tests.integration.process import Role
from tests.integration.scripted import SLOW
from tests.integration.stack import Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

PROMPT_S = 10.0


@contextmanager
def hanging(postgres: PostgresHandle) -> Iterator[None]:
    """Stop the server with each of its processes, and let them go on in the end."""
    root = postgres.pid
    os.kill(root, signal.SIGSTOP)
    children = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    pids = [int(child) for child in children]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in (*pids, root):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.req("OPS-4")
@pytest.mark.parametrize(
    ("role", "second"),
    [("all", signal.SIGTERM), ("all", signal.SIGINT), ("worker", signal.SIGTERM)],
)
async def test_a_second_signal_ends_it_promptly(
    own: Stacks, postgres: PostgresHandle, role: Role, second: signal.Signals
) -> None:
    async with (
        ScriptedModel([SLOW]) as model,
        ScriptedTools() as tools,
        own.open(model=model.base_url, lease_s=15, env={"SUREFOOT_DRAIN_S": "60"}) as stack,
    ):
        tools.hold_before("slow")
        front = await stack.start("api" if role == "worker" else role)
        process = await stack.start("worker") if role == "worker" else front
        client = stack.client(front)
        await client.register(*(spec for spec in tools.specs() if spec["name"] == "slow"))
        await client.create("go")
        async with asyncio.timeout(30):
            await tools.called()
        process.checked = False
        with hanging(postgres):
            process.terminate()
            await until(lambda: "drain.waits" in process.text(), timeout_s=30, what="a drain")
            began = time.monotonic()
            process.signal(second)
            assert await process.wait(60) == 0
            took = time.monotonic() - began
        print(f"{role}: gone {took:.2f} s after the second signal")
        assert took < PROMPT_S
        assert "Traceback" not in process.text()
        front.kill()
        stack.sound = False
