"""Tools: their definitions, what they do, how often each call was delivered and carried out."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.core.canonical import Json
from app.core.events import EffectClass, ToolRef
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.ports.tools import Checked, StatusReply, ToolReply, ToolRequest

Behaviour = Callable[[ToolRequest], Awaitable[Json]]


def spec(name: str, effect: EffectClass = EffectClass.READ, **more: object) -> ToolSpec:
    """Return a tool that takes any arguments."""
    base = ToolSpec(name, 1, ToolKind.HTTP, f"The tool {name}.", {"type": "object"}, effect=effect)
    return base if not more else _with(base, more)


def _with(base: ToolSpec, more: dict[str, object]) -> ToolSpec:
    fields = {name: getattr(base, name) for name in ToolSpec.__slots__}
    return ToolSpec(**{**fields, **more})


SPECS = (
    spec("calculate"),
    spec("get_weather"),
    spec("create_reminder", EffectClass.ONCE),
    spec("save_note", EffectClass.IDEMPOTENT),
    spec("slow"),
    spec("boom"),
)


async def _answer(request: ToolRequest) -> Json:
    return {"tool": request.spec.name, "arguments": dict(request.arguments)}


@dataclass
class ScriptedTools:
    """A `ToolPort`. The effect of a call happens in the middle of the time it takes."""

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    takes_s: float = 0.05
    delivered: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)
    results: dict[str, Json] = field(default_factory=dict)
    cut: int = 0
    running: int = 0
    most_running: int = 0

    async def run(self, request: ToolRequest) -> ToolReply:
        name = request.spec.name
        self.delivered[name] += 1
        self.keys.append(request.key)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(self.takes_s / 2)
            output = await self.behaviours.get(name, _answer)(request)
            self.done[name] += 1
            self.results[request.key] = output
            await asyncio.sleep(self.takes_s / 2)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.running -= 1
        return ToolReply(output, None)

    async def check(self, request: ToolRequest) -> StatusReply:
        """Say what the tool remembers of this key."""
        await asyncio.sleep(self.takes_s / 2)
        if request.key not in self.results:
            return StatusReply(happened=False)
        return StatusReply(happened=True, output=self.results[request.key])


class FewTools:
    """A `ToolStore` that holds these tools, for every tenant."""

    def __init__(self, *specs: ToolSpec) -> None:
        self.specs = {one.name: one for one in specs}

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        del tenant
        if (spec.name in self.specs) is create:
            return None
        self.specs[spec.name] = spec
        return spec

    async def current(self, tenant: str) -> list[ToolSpec]:
        del tenant
        await asyncio.sleep(0)
        return list(self.specs.values())

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        del tenant
        await asyncio.sleep(0)
        return self.specs.get(ref.name)

    async def delete(self, tenant: str, name: str) -> bool:
        del tenant
        return self.specs.pop(name, None) is not None


class JsonArguments:
    """An `ArgumentReader` that takes every JSON object."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        try:
            given = json.loads(raw or "{}")
        except ValueError:
            given = None
        if isinstance(given, dict):
            return Checked(given, None, None)
        fault = Fault.of(FaultKind.INVALID_ARGS, f"{spec.name} takes a JSON object.")
        return Checked(None, fault, "{}")
