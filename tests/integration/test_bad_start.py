"""Starts that cannot succeed: words and a code instead of a traceback, and an end when told to."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from app.devstack.lock import folder_lock
from tests.integration.process import ROOT
from tests.integration.stack import free_port

KEYS = "k:" + "A" * 43 + "="
NOWHERE = {
    "DATABASE_URL": "postgresql://u:canary@127.0.0.1:1/x",
    "REDIS_URL": "redis://127.0.0.1:1",
}


async def start(*command: str, **settings: str) -> asyncio.subprocess.Process:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env = {f"SUREFOOT_{name}": value for name, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app.cli.main", *command),
        cwd=ROOT,
        env={**kept, **env, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def said(process: asyncio.subprocess.Process) -> str:
    """Return what a process wrote until its end, which is one of wrong settings."""
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 2, text
    assert "Traceback" not in text
    assert "canary" not in text
    return text


@pytest.mark.req("OPS-3")
async def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    models, file = tmp_path / "models.json", tmp_path / "file"
    models.write_text(json.dumps({"models": [{"name": "a", "protocol": "telepathy"}]}))
    file.touch()
    data = ("dev", "--port", "0", "--data")
    wrong = await start(*data, str(tmp_path / "data"), MODELS_FILE=str(models))
    assert "SUREFOOT_MODELS_FILE" in await said(wrong)
    assert "is a file" in await said(await start(*data, str(file)))
    assert "cannot be made" in await said(await start(*data, str(file / "below")))
    assert "cannot be reached" in await said(await start("migrate", **NOWHERE))


@pytest.mark.req("OPS-3")
async def test_dev_says_what_is_in_its_way(tmp_path: Path) -> None:
    data = ("dev", "--port", "0", "--data", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    with folder_lock(tmp_path / "data" / "lock"):
        assert f"in use by process {os.getpid()}" in await said(await start(*data))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = ("dev", "--data", str(tmp_path / "data"), "--port", str(other.getsockname()[1]))
        assert "SUREFOOT_PORT" in await said(await start(*taken))
    assert "SUREFOOT_ADMIN_KEY" in await said(await start(*data, "--host", "0.0.0.0"))  # noqa: S104 - refused


@pytest.mark.req("OPS-4")
@pytest.mark.parametrize("role", ["all", "worker"])
async def test_a_process_that_waits_for_its_schema_ends_when_told_to(role: str) -> None:
    port = str(free_port())
    process = await start(
        "serve", "--role", role, **NOWHERE, ENCRYPTION_KEYS=KEYS, PORT=port, DRAIN_S="1"
    )
    assert process.stdout is not None
    async with asyncio.timeout(120):
        async for line in process.stdout:
            if b"schema.awaited" in line:
                assert b"cannot be reached" in line
                break
        process.send_signal(signal.SIGTERM)
        rest = await process.stdout.read()
        assert await process.wait() == 0, rest.decode()
