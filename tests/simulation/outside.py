"""The world outside: a model endpoint and a tool server that count what reaches them.

Both look, at the moment a request leaves its process, whether it may: the intent is in the journal
and its sender holds the session under a living lease. A tool's effect happens in the server, within
the call's timeout, whatever becomes of its caller.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.core.canonical import Json, action_digest
from app.core.events import EffectClass, ModelRef, Usage
from app.core.faults import Fault, FaultKind
from app.core.messages import ToolMessage, UserMessage
from app.core.toolbox import ApprovalMode, HttpTemplate, ToolKind, ToolSpec
from app.runtime.errors import ModelFailure, ToolFailure, Withheld
from app.runtime.ports.models import ModelReply, ModelRequest, RawCall
from app.runtime.ports.tools import Checked, StatusReply, ToolReply, ToolRequest
from tests.fakes.scripted_tools import spec
from tests.simulation.audit import Audit
from tests.simulation.loop import Process, SeededLoop
from tests.simulation.postgres import OverError
from tests.simulation.strict import refusal
from tests.simulation.weather import Weather

MODEL = ModelRef("scripted")
USAGE = Usage(input_tokens=60, output_tokens=10)
TOOL_TIMEOUT_S = 1.5

_STATUS = HttpTemplate("GET", "http://tools.test/{idempotency_key}")
SPECS: tuple[ToolSpec, ...] = tuple(
    spec(name, effect, **{"timeout_s": TOOL_TIMEOUT_S, **more})
    for name, effect, more in (
        ("look", EffectClass.READ, {}),
        ("note", EffectClass.IDEMPOTENT, {}),
        ("pay", EffectClass.ONCE, {}),
        ("mail", EffectClass.ONCE, {"timeout_s": 6.0}),
        ("boom", EffectClass.READ, {}),
        ("spend", EffectClass.ONCE, {"approval": ApprovalMode.ALWAYS}),
        ("order", EffectClass.ONCE, {"status_check": _STATUS}),
        ("ask", EffectClass.READ, {"kind": ToolKind.CLIENT}),
        ("add", EffectClass.READ, {}),
    )
)
_NAMES = (
    *("pay", "pay", "mail", "mail", "look", "look", "note", "note"),
    *("boom", "spend", "order", "order", "ask", "add", "add"),
)
_MODEL_FAULTS = (
    FaultKind.TIMEOUT,
    FaultKind.RATE_LIMITED,
    FaultKind.EMPTY_ANSWER,
    FaultKind.UNAVAILABLE,
    FaultKind.INTERNAL,
    FaultKind.REFUSED_REQUEST,
)
_MEANT_NO = (FaultKind.NOT_FOUND, FaultKind.PERMISSION, FaultKind.CONFLICT, FaultKind.INVALID_ARGS)
_NOBODY_KNOWS = (FaultKind.TIMEOUT, FaultKind.UNAVAILABLE, FaultKind.INTERNAL)


@dataclass
class Outside:
    """The endpoint and the server, shared by all processes."""

    loop: SeededLoop
    weather: Weather
    audit: Audit
    over: bool = False
    delivered: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    actions: dict[str, str] = field(default_factory=dict)
    """The action (tool and arguments) of every call that reached the tool server, by its key."""

    def __post_init__(self) -> None:
        self._here = Process("outside").context

    def happened(self, session_id: str, call_id: str) -> bool:
        """Return what a person finds who looks whether a call took effect."""
        return self.effects[f"{session_id}:{call_id}"] > 0

    def begun(self, session_id: str, action: str) -> bool:
        """Return whether a call of this action has reached the tool server, for this session."""
        keys = (key for key, known in self.actions.items() if known == action)
        return any(key.startswith(f"{session_id}:") for key in keys)

    def begun_with(self, session_id: str, name: object, arguments: Mapping[str, object]) -> bool:
        """Return the same of a tool and its arguments."""
        return self.begun(session_id, action_digest(str(name), dict(arguments)))

    def take(self, request: ToolRequest, process: Process) -> None:
        """Note the arrival of a call's first byte."""
        key, effect = request.key, request.spec.effect
        session_id, _, call_id = key.partition(":")
        self.delivered[key] += 1
        self.actions[key] = action_digest(request.spec.name, dict(request.arguments))
        self.audit.note(process.name, "tool", session_id, request.spec.name, call_id)
        if effect is EffectClass.ONCE and self.delivered[key] > 1:
            self.audit.fail(f"once: {key} was delivered {self.delivered[key]} times")
        self.audit.sends(process.name, session_id, call_id=call_id)

    def affect(self, request: ToolRequest) -> None:
        """Let a call take effect, later, in the server."""
        self.audit.under_way.add(request.key)
        delay_s = self.weather.chance.choice((0.0, 0.1, 0.5, 0.9)) * _timeout_s(request)
        self.loop.call_later(delay_s, self._affect, request.key, context=self._here)

    def _affect(self, key: str) -> None:
        self.effects[key] += 1
        self.audit.under_way.discard(key)
        self.audit.note("tools", "effect", *key.split(":"))

    async def wait(self, seconds: float) -> None:
        if self.over:
            raise OverError
        await asyncio.sleep(seconds)


@dataclass
class ToolsPort:
    """The `ToolPort` of one process."""

    outside: Outside
    process: Process

    async def run(self, request: ToolRequest) -> ToolReply:
        outside, weather = self.outside, self.outside.weather
        chance = weather.chance
        if request.spec.name == "add":
            if chance.random() < 0.1:
                raise ToolFailure(Fault.of(chance.choice((*_MEANT_NO, *_NOBODY_KNOWS)), "no sum"))
            return ToolReply(_output(request, chance.randrange(3)), None)
        self.process.reaches("tool", chance)
        await outside.wait(chance.choice((0.0, 0.0, 0.01, 0.2, 0.8)))
        if weather.happens(weather.unsent):
            fault = Fault.of(FaultKind.UNAVAILABLE, "refused the connection", sent=False)
            raise ToolFailure(fault)
        if not request.may_send():
            raise Withheld
        outside.take(request, self.process)
        if request.spec.name == "boom" or weather.happens(weather.tool_fails):
            await outside.wait(0.05)
            raise ToolFailure(Fault.of(chance.choice(_MEANT_NO), "the tool says no"))
        if weather.happens(weather.tool_lost):
            if chance.random() < 0.6:
                outside.affect(request)
            await outside.wait(chance.choice((0.1, _timeout_s(request))))
            raise ToolFailure(Fault.of(chance.choice(_NOBODY_KNOWS), "no answer came"))
        outside.affect(request)
        await outside.wait(chance.choice((0.02, 0.2, 0.2, 1.0)))
        return ToolReply(_output(request, chance.randrange(3)), None)

    async def check(self, request: ToolRequest) -> StatusReply:
        """Say what became of a call; the server knows of it from its first byte on."""
        outside, weather = self.outside, self.outside.weather
        await outside.wait(weather.chance.choice((0.0, 0.05, 0.5)))
        if not request.may_send():
            raise Withheld
        if weather.happens(weather.tool_lost):
            raise ToolFailure(Fault.of(weather.chance.choice(_NOBODY_KNOWS), "no answer came"))
        if request.key in outside.audit.under_way:
            return StatusReply(None, detail="under way")
        return StatusReply(happened=outside.effects[request.key] > 0, output={"by": "check"})


class Arguments:
    """An `ArgumentReader` that takes every JSON object."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        try:
            given = json.loads(raw or "{}")
        except ValueError:
            fault = Fault.of(FaultKind.INVALID_ARGS, f"{spec.name} takes a JSON object.")
            return Checked(None, fault, "{}")
        return Checked(given, None, None, needs_approval=spec.approval is ApprovalMode.ALWAYS)


def _timeout_s(request: ToolRequest) -> float:
    return request.spec.timeout_s or TOOL_TIMEOUT_S


def _output(request: ToolRequest, variant: int) -> Json:
    if variant == 0:
        return {"tool": request.spec.name, "arguments": dict(request.arguments)}
    return "done" if variant == 1 else None


@dataclass
class ModelsPort:
    """The `ModelPort` of one process; what the model says is drawn from the seed."""

    outside: Outside
    process: Process

    def get(self, name: str | None) -> ModelRef | None:
        return MODEL if name in {None, MODEL.name} else None

    def names(self) -> list[ModelRef]:
        return [MODEL]

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        outside, weather = self.outside, self.outside.weather
        session_id, _, key = request.traceparent.partition("|")
        outside.audit.note(self.process.name, "model", session_id, key)
        self.process.reaches("model", weather.chance)
        fault = refusal(request)
        if fault is not None:
            outside.audit.fail(f"a provider would refuse a request of {session_id}: {fault}")
        outside.audit.sends(self.process.name, session_id, request_seq=int(key.split(":")[1]))
        takes_s = weather.chance.choice((0.05, 0.2, 0.6, 1.5))
        for _ in range(3):
            await outside.wait(takes_s / 3)
            if on_delta is not None:
                on_delta("word ")
        if weather.happens(weather.model_fails):
            raise ModelFailure(Fault.of(weather.chance.choice(_MODEL_FAULTS), "the model fails"))
        return self._reply(request)

    def _reply(self, request: ModelRequest) -> ModelReply:
        chance = self.outside.weather.chance
        results = 0
        for message in reversed(request.messages):
            if isinstance(message, UserMessage) and not message.note:
                break
            results += isinstance(message, ToolMessage)
        enough = chance.random() < 0.15 + 0.12 * results
        if enough or not request.tools:
            return _said(self._last(request))
        calls = tuple(self._call(n) for n in range(chance.choice((1, 1, 1, 2, 3))))
        return ModelReply("", None, calls, USAGE, "tool_calls", MODEL.name, 1.0)

    def _last(self, request: ModelRequest) -> tuple[str, tuple[RawCall, ...]]:
        if request.offer_finish and self.outside.weather.chance.random() < 0.3:
            return "", (RawCall("f1", "finish", json.dumps({"text": "done", "complete": True})),)
        return f"after {len(request.messages)} messages", ()

    def _call(self, n: int) -> RawCall:
        chance = self.outside.weather.chance
        wire_id = chance.choice(("", "call_1", f"c{chance.randrange(1000)}", f"call_{n}"))
        odd = chance.random()
        if odd < 0.03:
            return RawCall(wire_id, "nothing", "{}")
        if odd < 0.06:
            return RawCall(wire_id, "look", "{n: 1")
        return RawCall(wire_id, chance.choice(_NAMES), json.dumps({"n": chance.randrange(3)}))


def _said(what: tuple[str, tuple[RawCall, ...]]) -> ModelReply:
    text, calls = what
    return ModelReply(text, None, calls, USAGE, "stop", MODEL.name, 1.0)
