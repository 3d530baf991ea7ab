"""A scene in which people have a say: one or two processes, payments to approve, client tools."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.integration.client import Client, Json
from tests.integration.process import Process
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import Script
from tests.scripted.tools import ScriptedTools

CLIENT_TOOL: Json = {
    "name": "ask_device",
    "kind": "client",
    "description": "Reads a sensor of the caller's device and returns its value.",
    "parameters": {"type": "object", "properties": {"sensor": {"type": "string"}}},
    "effect": "read",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Processes with their client, model and tools."""

    stack: Stack
    process: Process
    client: Client
    model: ScriptedModel
    tools: ScriptedTools

    def paid(self) -> list[object]:
        """Return the amounts that were paid, one for each effect."""
        seen: dict[str, object] = {}
        for delivery in self.tools.received:
            if delivery.tool == "pay":
                seen[delivery.key] = delivery.arguments["amount"]
        return list(seen.values())

    async def waiting(self, session_id: str, kind: str) -> Json:
        """Return what the session waits for, once it does."""
        shown = await self.client.reached(session_id, "waiting")
        assert shown["pending"]["kind"] == kind
        pending: Json = shown["pending"]
        return pending

    async def decide(
        self, approval_id: str, decision: str, *, expect: int = 200, **more: object
    ) -> Json:
        """Decide an approval."""
        body = {"decision": decision, **more}
        return await self.client.post(f"/v1/approvals/{approval_id}", body, expect=expect)


@asynccontextmanager
async def people(
    stacks: Stacks,
    script: Sequence[Answer] | Script,
    *,
    env: dict[str, str] | None = None,
    lease_s: float = 4,
    **changes: Json,
) -> AsyncIterator[Scene]:
    """Yield a scene; `changes` are put over the registrations of tools by their names."""
    async with AsyncExitStack() as kept:
        model = await kept.enter_async_context(ScriptedModel(script))
        tools = await kept.enter_async_context(ScriptedTools())
        stack = await kept.enter_async_context(stacks.open(model=model.base_url, lease_s=lease_s))
        process = await stack.start("all", env=env)
        client = stack.client(process)
        specs = [spec | changes.get(spec["name"], {}) for spec in tools.specs()]
        await client.register(*specs, CLIENT_TOOL)
        yield Scene(stack, process, client, model, tools)
