"""The other ports for tests of the HTTP edge: hub, codec, keys, models, prompts, tools."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

from app.core.events import Event, ModelRef, PhaseEntered, PromptRef
from app.core.faults import Fault, FaultKind
from app.core.state import State
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.errors import Erased, ToolFailure
from app.runtime.ports.keys import SessionCipher, WrappedKey
from app.runtime.ports.live import LiveEvent
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.tools import Checked, StatusReply, ToolReply, ToolRequest
from app.runtime.sealing import Sealer
from app.runtime.times import rfc3339
from app.storage.chain import ChainWalk
from app.storage.codec import JsonCodec


class PlainCipher:
    """Hides nothing."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        return context + b"|" + plain

    def open(self, sealed: bytes, context: bytes) -> bytes:
        found, _, plain = sealed.partition(b"|")
        assert found == context
        return plain

    def link(self, event_seq: int, v: int, payload: bytes, previous: bytes) -> bytes:
        return b"%d:%d" % (event_seq, len(payload) + v + len(previous))


class PlainKeyring:
    """The same cipher for everybody."""

    ids = ("k1",)

    def create(self, session_id: str) -> tuple[WrappedKey, SessionCipher]:
        return WrappedKey("k1", session_id.encode()), PlainCipher()

    def unwrap(self, session_id: str, key: WrappedKey) -> SessionCipher:
        if not key.wrapped:
            raise Erased(session_id)
        assert key.wrapped == session_id.encode()
        return PlainCipher()

    def seal_record(self, plain: bytes) -> bytes:
        return b"sealed:" + plain

    def open_record(self, sealed: bytes) -> bytes:
        return sealed.removeprefix(b"sealed:")

    def digest_record(self, plain: bytes) -> bytes:
        return b"digest:" + plain

    def is_digest(self, digest: bytes, plain: bytes) -> bool:
        return digest == b"digest:" + plain


class PlainChains:
    """Chains of the plain keyring."""

    def __init__(self, keyring: PlainKeyring) -> None:
        self._keyring = keyring

    def walk(self, session_id: str, key: WrappedKey) -> ChainWalk:
        try:
            cipher = self._keyring.unwrap(session_id, key)
        except Erased:
            return ChainWalk(PlainCipher(), None)
        return ChainWalk(cipher, Sealer(JsonCodec(), cipher).open)


class JsonOnlyCodec:
    """Writes events; nobody reads them here."""

    def encode(self, event: Event) -> bytes:
        body = event.body
        data = asdict(body)
        if isinstance(body, PhaseEntered):
            data = {"from": body.source, "to": body.target}
        shown = {
            "seq": event.seq,
            "type": body.TYPE,
            "v": body.V,
            "at": rfc3339(event.at_us),
            "turn": event.turn,
            "step": event.step,
            "phase": event.phase,
            "data": data,
        }
        return json.dumps(shown, ensure_ascii=False).encode()

    def decode(self, payload: bytes) -> Event:
        raise NotImplementedError

    def encode_state(self, state: State) -> bytes:
        raise NotImplementedError

    def decode_state(self, payload: bytes) -> State:
        raise NotImplementedError


@dataclass
class FakeHub:
    """Fan-out within the process. `lossy` drops everything that is published."""

    lossy: bool = False
    elsewhere: int | None = 0
    nudged: list[str] = field(default_factory=list)
    queues: dict[str, list[asyncio.Queue[LiveEvent | None]]] = field(default_factory=dict)
    resting: list[Callable[[str], None]] = field(default_factory=list)

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        for event in events:
            for queue in () if self.lossy else self.queues.get(event.session_id, ()):
                queue.put_nowait(event)

    def followed(self, session_id: str) -> bool:
        return bool(self.queues.get(session_id))

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        self.queues.setdefault(session_id, []).append(queue)
        try:
            yield _items(queue)
        finally:
            self.queues[session_id].remove(queue)

    async def readers(self, session_id: str) -> int | None:
        here = len(self.queues.get(session_id, ()))
        return None if self.elsewhere is None else self.elsewhere + here

    async def nudge(self, session_id: str) -> None:
        self.nudged.append(session_id)

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        raise NotImplementedError

    def rested(self, session_id: str) -> None:
        for callback in self.resting:
            callback(session_id)

    def on_rest(self, callback: Callable[[str], None]) -> None:
        self.resting.append(callback)


async def _items(queue: asyncio.Queue[LiveEvent | None]) -> AsyncIterator[LiveEvent | None]:
    while True:
        yield await queue.get()


class FakeModels:
    """Two models; the second has prices."""

    def __init__(self) -> None:
        self._refs = [ModelRef("demo"), ModelRef("paid", price_input=1.0, price_output=2.0)]

    def get(self, name: str | None) -> ModelRef | None:
        return next((ref for ref in self._refs if name in {None, ref.name}), None)

    def names(self) -> list[ModelRef]:
        return self._refs

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        raise NotImplementedError


class FakePrompts:
    """One prompt."""

    async def ref(self, name: str, encoding: str) -> PromptRef:
        del encoding
        return PromptRef(name, 1, "0" * 64, 10)

    def text(self, name: str, version: int) -> str:
        if version != 1:
            raise LookupError(name)
        return f"You are the {name}."


class FakeTokens:
    """A token a word."""

    async def count(self, text: str, encoding: str) -> int:
        del encoding
        return len(text.split())


class FakeArguments:
    """Wants every required argument."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        arguments = json.loads(raw)
        required = spec.parameters.get("required")
        missing = [n for n in required if n not in arguments] if isinstance(required, list) else []
        if missing:
            fault = Fault.of(FaultKind.INVALID_ARGS, f"missing: {missing}", sent=False)
            return Checked(None, fault, None)
        return Checked(arguments, None, None)


@dataclass
class FakeToolPort:
    """Echoes its arguments, or fails as told."""

    fails: Fault | None = None
    breaks: Exception | None = None
    requests: list[ToolRequest] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def run(self, request: ToolRequest) -> ToolReply:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.breaks is not None:
            raise self.breaks
        if self.fails is not None:
            raise ToolFailure(self.fails)
        return ToolReply({"echo": dict(request.arguments)}, None)

    async def check(self, request: ToolRequest) -> StatusReply:
        raise NotImplementedError


CALCULATE = ToolSpec("calculate", 1, ToolKind.BUILTIN, "Calculates.", {"type": "object"})


@dataclass
class KeepingObserver:
    """Keeps the log lines."""

    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        raise NotImplementedError

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        raise NotImplementedError

    def traceparent(self, state: State, effect_key: str) -> str:
        raise NotImplementedError

    def log(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))
