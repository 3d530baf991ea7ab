"""The release before this one beside this one, over one database.

The older release is its own code, taken from the history into a folder, and run as processes.
A release moves `BEFORE` to the commit of the one before it; what a later one can still read of
earlier ones is shown by their journals in `tests/replay`.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2
import pytest

from app.storage.migrate import migrate
from tests.integration.client import Client, Json
from tests.integration.process import ROOT, Process
from tests.integration.stack import Stack, Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import Script
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

BEFORE: Final = "04e2ae30ff95be3a88f24d71c17c3471009d93e6"
"""The last commit before events of generation 2 (`JOURNAL_V`)."""
_MISSING: Final = """\
The release before this one cannot be had: `git archive {commit}` failed.
{reason}
This test runs the real code of that release, so it needs the history of the repository: a full
clone (`git fetch --unshallow` completes a shallow one), and git."""
_MIGRATE: Final = """\
import asyncio, sys
from app.storage.migrate import migrate
asyncio.run(migrate(sys.argv[1]))"""
PLENTY: Json = {"total_timeout_s": 600}
"""Limits under which no session ends because the machine is busy."""


def unpack(folder: Path, commit: str = BEFORE) -> Path:
    """Put the code of a release into a folder."""
    git = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT))
    try:
        made = subprocess.run(
            (*git, "archive", "--format=tar", commit, "app", "migrations"),
            check=False,
            capture_output=True,
        )
    except FileNotFoundError as error:
        pytest.fail(_MISSING.format(commit=commit, reason=error))
    if made.returncode:
        pytest.fail(_MISSING.format(commit=commit, reason=made.stderr.decode().strip()))
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


async def _migrate_as_before(code: Path, dsn: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MIGRATE, dsn, cwd=code, env={"PYTHONPATH": str(code)}
    )
    assert await process.wait() == 0


@dataclass(slots=True, kw_only=True)
class Upgrade:
    """An upgrade under way: what is there of the older release, and what is started of this one."""

    stack: Stack
    model: ScriptedModel
    tools: ScriptedTools
    code: Path
    before: Client
    """The API of the older release, which stays to the end."""
    ready: list[int] = field(default_factory=list)
    """What `/readyz` of the older API answered, all the time."""

    async def older(self, **env: str) -> Process:
        """Start a worker of the older release."""
        return await self.stack.spawn("worker", code=self.code, env=env)

    async def newer(self) -> tuple[Client, Process]:
        """Start an API and a worker of this release."""
        worker = await self.stack.start("worker")
        return self.stack.client(await self.stack.start("api")), worker

    async def migrate(self) -> None:
        """Bring the schema to this release's, while whatever runs goes on."""
        await migrate(self.stack.dsn)

    async def ran_by(self, session_id: str) -> list[str]:
        """Return the workers that had a session, in order."""
        claims = [e["data"] for e in await self.before.events(session_id) if _claimed(e)]
        return [str(data["worker"]) for data in claims]

    async def min_version(self, session_id: str) -> int:
        """Return which generation of events a worker must read to claim a session."""
        rows = await self.stack.rows("select min_version from sessions where id = $1", session_id)
        return int(rows[0]["min_version"])

    async def watch(self) -> None:
        """Ask the older API whether it is ready, until cancelled."""
        async with httpx2.AsyncClient(base_url=self.before.url, timeout=30) as http:
            while True:
                self.ready.append((await http.get("/readyz")).status_code)
                await asyncio.sleep(0.1)

    async def asked_again(self, times: int) -> None:
        """Return when the older API was asked this often more whether it is ready."""
        seen = len(self.ready)
        await until(lambda: len(self.ready) >= seen + times, timeout_s=60, what="it was asked")


def _claimed(event: Json) -> bool:
    return bool(event["type"] == "session.claimed")


@asynccontextmanager
async def upgrading(stacks: Stacks, script: Script, code: Path) -> AsyncIterator[Upgrade]:
    """Yield an upgrade that has not begun: the older schema, an API of the older release."""

    async def as_before(dsn: str) -> None:
        await _migrate_as_before(code, dsn)

    async with AsyncExitStack() as kept:
        model = await kept.enter_async_context(ScriptedModel(script))
        tools = await kept.enter_async_context(ScriptedTools())
        opened = stacks.open(model=model.base_url, schema=(f"as of {BEFORE}", as_before))
        stack = await kept.enter_async_context(opened)
        before = stack.client(await stack.spawn("api", code=code))
        timeouts = {"pay": 4}
        specs = ({**s, "timeout_s": timeouts.get(s["name"], 100)} for s in tools.specs())
        await before.register(*specs)
        upgrade = Upgrade(stack=stack, model=model, tools=tools, code=code, before=before)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(upgrade.watch())
            yield upgrade
            watching.cancel()
