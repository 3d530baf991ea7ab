"""`surefoot dev`, which is `make run` after its setup: everything from an empty folder."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.process import ROOT
from tests.integration.stack import free_port
from tests.servers import server_folder
from tests.waiting import until

TASK = "a product costs 299, 20 % off, then minus 50, how much is it?"


@asynccontextmanager
async def dev(data: Path) -> AsyncIterator[Client]:
    """Run the command as a newcomer would: no setting at all."""
    port = free_port()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    command = (sys.executable, "-m", "app.cli.main", "dev", "--data", str(data))
    log = (data.parent / f"{port}.log").open("wb")
    running = subprocess.Popen(  # noqa: ASYNC220 - it goes on beside the test
        (*command, "--port", str(port)),
        cwd=data.parent,
        env={**kept, "HOME": str(data.parent), "PYTHONPATH": str(ROOT)},
        stdout=log,
        stderr=log,
    )
    client = Client(f"http://127.0.0.1:{port}")

    async def ready() -> bool:
        assert running.poll() is None, (data.parent / f"{port}.log").read_text()
        try:
            return (await client.http.get("/readyz")).status_code == httpx2.codes.OK
        except httpx2.TransportError:
            return False

    try:
        await until(ready, timeout_s=60, what="dev is ready")
        yield client
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    finally:
        await client.close()
        running.kill()
        running.wait()
        log.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as made:
        yield made


@pytest.mark.req("OPS-1", "OPS-6", "OPS-5", "API-13")
async def test_the_first_run_needs_nothing_and_the_second_finds_the_first(folder: Path) -> None:
    data = folder / "data"
    async with dev(data) as client:
        made = await client.http.post(
            "/v1/sessions", json={"task": TASK}, headers={"Prefer": "wait=20"}
        )
        first = made.json()
        assert (made.status_code, first["status"]) == (200, "completed")
        assert "189.2" in first["result"]["text"]
        assert first["usage"]["tool_calls"] == 1
        for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"):
            assert (await client.http.get(path)).status_code == httpx2.codes.OK
    async with dev(data) as client:
        assert await client.session(first["id"]) == first
        assert len(await client.events(first["id"])) == first["last_seq"]
        second = await client.post(f"/v1/sessions/{first['id']}/messages", {"text": "hello"})
        assert second["receipt"] == "started"
        assert (await client.settled(first["id"]))["turn"] == 2
        assert await checked(data) == 0


async def checked(data: Path) -> int:
    """Run `fsck` beside it, as docs/explaining.md says."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.main", "fsck"),
        cwd=ROOT,
        env={
            **os.environ,
            "SUREFOOT_DATABASE_URL": (data / "database").read_text().strip(),
            "SUREFOOT_ENCRYPTION_KEYS": (data / "keys").read_text().strip(),
        },
    )
    return await running.wait()
