"""One service, one scripted model, one server of tools, shared by the tests of a module."""

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.integration.client import Client, Json, Reader
from tests.integration.plans import task_of
from tests.integration.process import Process
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import Script
from tests.scripted.tools import ScriptedTools


@dataclass(slots=True, kw_only=True)
class Run:
    """A session that has come to rest, with all that is known of it."""

    session: Json
    events: list[Json]
    requests: list[Body]

    @property
    def id(self) -> str:
        """Return its id."""
        return str(self.session["id"])

    def of(self, kind: str) -> list[Json]:
        """Return the data of every event of a type."""
        return [event["data"] for event in self.events if event["type"] == kind]


@dataclass(slots=True, kw_only=True)
class Ground:
    """What the tests of a module share. Each session gets the plan of its task's first word."""

    model: ScriptedModel
    tools: ScriptedTools
    stack: Stack
    process: Process
    client: Client
    plans: dict[str, Script]
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def run(
        self, plan: Script, *, words: str = "", timeout_s: float = 30.0, **fields: object
    ) -> Run:
        """Run a session by a plan until it has come to rest."""
        name = f"task{next(self._numbers)}"
        self.plans[name] = plan
        session_id = await self.client.create(f"{name} {words}".strip(), **fields)
        return await self.rest(session_id, timeout_s=timeout_s)

    async def rest(self, session_id: str, *, timeout_s: float = 30.0) -> Run:
        """Wait until a session rests and return all of it."""
        session = await self.client.settled(session_id, timeout_s=timeout_s)
        events = await self.client.events(session_id)
        task = next(e["data"]["text"] for e in events if e["type"] == "turn.started")
        name = task.split(maxsplit=1)[0]
        requests = [b for b in self.model.bodies if task_of(b).split(maxsplit=1)[0] == name]
        return Run(session=session, events=events, requests=requests)

    async def resume(self, session_id: str, **limits: object) -> Run:
        """Resume with limits, and wait for the end of the turn that follows."""
        turn = (await self.client.session(session_id))["turn"]
        body = {"limits": limits} if limits else {}
        await self.client.post(f"/v1/sessions/{session_id}/resume", body, expect=202)
        return await self._after(session_id, turn)

    async def say(self, session_id: str, words: str) -> Run:
        """Send a message and wait for the end of the turn that answers it."""
        turn = (await self.client.session(session_id))["turn"]
        await self.client.post(f"/v1/sessions/{session_id}/messages", {"text": words}, expect=202)
        return await self._after(session_id, turn)

    async def _after(self, session_id: str, turn: int) -> Run:
        reader = Reader(session_id, lambda: [self.client.url])
        await reader.run()
        run = await self.rest(session_id)
        assert run.session["turn"] > turn
        return run


@asynccontextmanager
async def standing(
    stacks: Stacks, *, strict: bool = True, env: Mapping[str, str] | None = None
) -> AsyncIterator[Ground]:
    """Start all of it."""
    plans: dict[str, Script] = {}

    def script(request: Body, n: int) -> Answer:
        return plans[task_of(request).split(maxsplit=1)[0]](request, n)

    async with (
        ScriptedModel(script, strict=strict) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env=env) as stack,
    ):
        process = await stack.start("all")
        client = stack.client(process)
        await client.register(*({**spec, "max_attempts": 1} for spec in tools.specs()))
        yield Ground(
            model=model, tools=tools, stack=stack, process=process, client=client, plans=plans
        )
