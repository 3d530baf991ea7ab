"""The scripted endpoint and tools as processes, as benchmarks and kill tests use them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from app.core.messages import Message, UserMessage
from tests.providers.support import models, request, round_of, tool
from tests.scripted.tools import ScriptedTools

ROOT = Path(__file__).parents[2]


@contextmanager
def process(module: str, *arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", module, "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.terminate()
            rest = running.stdout.read()
    assert '"violations": []' in rest or not arguments
    assert running.returncode == 0


@pytest.mark.parametrize(("script", "calls"), [("five_plus_four", 4), ("weather", 2), ("shop", 1)])
async def test_a_script_is_followed_by_any_number_of_sessions(script: str, calls: int) -> None:
    tools = (tool("calculate"), tool("get_weather"), tool("create_reminder"))
    with process("tests.scripted.model", "--script", script, "--delay-ms", "1") as base_url:
        port = models(base_url)
        for _ in range(2):
            history: list[Message] = [UserMessage("go", 1)]
            for _ in range(calls):
                reply = await port.answer(request(*history, tools=tools), None)
                history += round_of(reply.calls[0].wire_id, reply.calls[0].name)
            assert (await port.answer(request(*history, tools=tools), None)).text
        await port.close()


async def test_tools_count_effects_by_key() -> None:
    async with ScriptedTools() as tools, httpx2.AsyncClient(base_url=tools.root) as client:
        key = {"Idempotency-Key": "ses:t1_c1_0"}
        first = await client.post("/reminders", json={"title": "x"}, headers=key)
        again = await client.post("/reminders", json={"title": "x"}, headers=key)
        assert first.json() == again.json() == {"ok": True, "number": 1}
        assert tools.deliveries["ses:t1_c1_0"] == 2
        assert (await client.get("/status/ses:t1_c1_0")).json()["happened"] is True
        assert (await client.get("/status/other")).json() == {"happened": False}
        weather = await client.get("/weather/New%20York", params={"date": "today"})
        assert weather.json()["city"] == "New York"
        assert tools.received[-1].arguments == {"date": "today", "path": "New York"}
        assert (await client.post("/boom")).status_code == 500
        assert (await client.get("/code/418")).status_code == 418
        assert (await client.get("/nothing")).status_code == 404
    assert {spec["name"] for spec in tools.specs()} >= {"get_weather", "create_reminder", "pay"}


async def test_a_held_tool_has_had_its_effect() -> None:
    async with ScriptedTools() as tools, httpx2.AsyncClient(base_url=tools.root) as client:
        hold = tools.hold_after("pay")
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(
                "/pay", json={"amount": 5}, headers={"Idempotency-Key": "k"}, timeout=0.05
            )
        await hold.reached()
        await tools.dropped()
        assert tools.effects["k"]["number"] == 1
        hold.release()
        assert (await client.post("/pay", headers={"Idempotency-Key": "k"})).json()["number"] == 1


def test_the_tools_run_as_a_process() -> None:
    with process("tests.scripted.tools") as root:
        httpx2.post(f"{root}/pay", json={"amount": 5}, headers={"Idempotency-Key": "k"})
        seen = httpx2.get(f"{root}/_seen").json()
    assert seen["deliveries"] == {"k": 1}
