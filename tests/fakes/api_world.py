"""A whole service behind the HTTP edge, in memory; a test plays the worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from typing_extensions import override

from app.api.deps import ApiServices, Auth, ParsedTool
from app.api.streams.places import Places
from app.core.events import (
    Body,
    EffectClass,
    Event,
    Limits,
    PhaseEntered,
    Result,
    SessionClosed,
    TurnEnded,
    Usage,
)
from app.core.evolve import fold, place
from app.core.ids import approval_id
from app.core.lifecycle import Phase, StopReason, status_of
from app.core.state import State
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.explaining.checkup import Checkup
from app.runtime.explaining.inquiry import Inquiry
from app.runtime.past import Past
from app.runtime.ports.journal import Facts
from app.runtime.ports.live import LiveEvent
from app.runtime.refusals import FieldFault, Invalid
from app.runtime.sealing import DELTA_CONTEXT, VIEW_CONTEXT, Sealer
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.answers import Answers
from app.runtime.sessions.approvals import Approvals
from app.runtime.sessions.audience import Audience
from app.runtime.sessions.creation import Creation
from app.runtime.sessions.erasing import Erasing
from app.runtime.sessions.forks import Forks
from app.runtime.sessions.results import Bounds
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.deliveries import ping
from app.runtime.side.firing import Firing
from app.runtime.side.schedules import Schedules
from app.runtime.side.webhooks import Courier, Webhooks
from app.runtime.streams.follow import Follower
from app.runtime.views import RESULT, facts_of, view_of
from app.storage.codec import JsonCodec
from tests.fakes.api_ports import (
    CALCULATE,
    FakeArguments,
    FakeHub,
    FakeModels,
    FakePrompts,
    FakeTokens,
    FakeToolPort,
    JsonOnlyCodec,
    KeepingObserver,
    PlainChains,
    PlainCipher,
    PlainKeyring,
)
from tests.fakes.api_store import FakeAudit, FakeStore
from tests.fakes.schedules import MemorySchedules
from tests.fakes.small import as_it_is
from tests.fakes.webhooks import FakePoster, MemoryWebhooks, readable


def parse_tool(body: dict[str, object], *, version: int, name: str | None) -> ParsedTool:
    """Read a registration as the tests need it."""
    found = body.get("name", name)
    if not isinstance(found, str) or not found:
        raise Invalid("The tool needs a name.", FieldFault("/name", "required"))
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise Invalid("Bad parameters.", FieldFault("/parameters", "must be an object"))
    spec = ToolSpec(
        found,
        version,
        ToolKind.CLIENT if body.get("kind") == "client" else ToolKind.HTTP,
        str(body.get("description", "")),
        parameters,
        effect=EffectClass(str(body.get("effect", "once"))),
        enabled=body.get("enabled") is not False,
    )
    return ParsedTool(spec, 90, ("/description: too short",))


def describe_tool(spec: ToolSpec) -> Mapping[str, object]:
    """Show a tool as the tests need it."""
    return {
        "name": spec.name,
        "version": spec.version,
        "kind": spec.kind,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "effect": spec.effect,
        "approval": "never",
        "status_check": None,
        "enabled": spec.enabled,
    }


@dataclass
class World:
    """The fakes, and the worker's hand."""

    clock: SystemClock = field(default_factory=SystemClock)
    store: FakeStore = field(default_factory=FakeStore)
    hub: FakeHub = field(default_factory=FakeHub)
    tool_port: FakeToolPort = field(default_factory=FakeToolPort)
    poster: FakePoster = field(default_factory=FakePoster)
    observer: KeepingObserver = field(default_factory=KeepingObserver)
    readiness: dict[str, object] = field(default_factory=lambda: {"ready": True})
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    auth: Auth = field(default_factory=lambda: Auth(required=False))
    body_limit: int = 1 << 20
    ping_s: float = 15.0
    most_queued: int = 10_000
    most_streams: int = 1000
    states: dict[str, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.follower = Follower(
            journal=self.store, hub=self.hub, clock=self.clock, ping_s=self.ping_s, patience_s=0
        )
        self.schedules = MemorySchedules(self.clock, self.store.take)
        self.webhooks = MemoryWebhooks(self.clock.now_us)
        self.admission = Admission(workers=self.store, clock=self.clock, most=self.most_queued)
        self.services = self._services()

    def _services(self) -> ApiServices:
        keyring, models, tokens = PlainKeyring(), FakeModels(), FakeTokens()
        catalog = Catalog(store=self.store, builtins=[CALCULATE], tokens=tokens, clock=self.clock)
        creation = Creation(
            clock=self.clock,
            codec=Keeping(self),
            keyring=keyring,
            store=self.store,
            hub=self.hub,
            models=models,
            catalog=catalog,
            prompts=FakePrompts(),
            tokens=tokens,
            limits=Limits(),
            admission=self.admission,
            sample=lambda _: True,
            trace_url=lambda _: None,
        )
        sessions = Sessions(
            clock=self.clock,
            keyring=keyring,
            store=self.store,
            workers=self.store,
            hub=self.hub,
            follower=self.follower,
            models=models,
            tokens=tokens,
            lease_s=0.5,
            admission=self.admission,
            trace_url=lambda _: None,
        )

        past = Past(clock=self.clock, codec=JsonCodec(), journal=self.store)
        self.audience = Audience(
            sessions=sessions, hub=self.hub, clock=self.clock, draining=self.draining
        )

        async def ready() -> Mapping[str, object]:
            return self.readiness

        return ApiServices(
            creation=creation,
            sessions=sessions,
            answers=Answers(
                clock=self.clock,
                sessions=sessions,
                past=past,
                catalog=catalog,
                bounds=Bounds(present=as_it_is, tokens=tokens),
            ),
            approvals=Approvals(
                clock=self.clock,
                sessions=sessions,
                store=self.store,
                catalog=catalog,
                arguments=FakeArguments(),
                tokens=tokens,
                past=past,
            ),
            forks=Forks(
                clock=self.clock,
                sessions=sessions,
                creation=creation,
                prompts=FakePrompts(),
                tokens=tokens,
                past=past,
                bounds=Bounds(present=as_it_is, tokens=tokens),
                sample=lambda _: True,
            ),
            erasing=Erasing(clock=self.clock, sessions=sessions),
            schedules=Schedules(
                clock=self.clock,
                keyring=keyring,
                store=self.schedules,
                sessions=self.store,
                firing=Firing(creation=creation, sessions=sessions),
            ),
            schedule_store=self.schedules,
            follower=self.follower,
            inquiry=self._inquiry(keyring),
            store=self.store,
            journal=self.store,
            keyring=keyring,
            clock=self.clock,
            catalog=catalog,
            tool_store=self.store,
            tool_port=self.tool_port,
            argument_reader=FakeArguments(),
            parse_tool=parse_tool,
            describe_tool=describe_tool,
            models=models,
            webhooks=Webhooks(
                store=self.webhooks,
                courier=Courier(
                    poster=self.poster, sign=readable, keyring=keyring, clock=self.clock
                ),
                ping=ping,
            ),
            observer=self.observer,
            ready=ready,
            metrics=lambda: b"surefoot_up 1\n",
            auth=self.auth,
            version="0.0.0",
            body_limit=self.body_limit,
            draining=self.draining,
            places=Places(self.most_streams),
            audience=self.audience,
        )

    def _inquiry(self, keyring: PlainKeyring) -> Inquiry:
        checkup = Checkup(
            audit=FakeAudit(self.store), chains=PlainChains(keyring), journal=self.store
        )
        return Inquiry(
            clock=self.clock,
            codec=JsonCodec(),
            keyring=keyring,
            store=self.store,
            workers=self.store,
            journal=self.store,
            prompts=FakePrompts(),
            checkup=checkup,
            version="0.0.0",
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve readers meanwhile."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.follower.run()),
                group.create_task(self.audience.run()),
            ]
            await asyncio.sleep(0)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def append(self, session_id: str, *bodies: Body, release: bool = False) -> None:
        """Write what a worker would write, and pass it on."""
        state = self.states[session_id]
        events: list[Event] = []
        for body in bodies:
            event = place(state, body, self.clock.now_us())
            state = fold((event,), state) or state
            events.append(event)
        self.states[session_id] = state
        row = self.store.rows[session_id]
        sealer = Sealer(JsonOnlyCodec(), PlainCipher())
        sealed = sealer.seal(events, row.head_hash)
        self.store.events[session_id].extend(sealed)
        facts: Facts = facts_of(state)
        self.store.rows[session_id] = replace(
            row,
            facts=facts,
            head=state.seq,
            head_hash=sealed[-1].hash if sealed else row.head_hash,
            inbox_seen=row.inbox_head,
            waking=False,
            owner=None if release else "wrk_1",
            owner_alive=not release,
            view=sealer.view(view_of(state)) if state.ended or state.pending else row.view,
        )
        live = [LiveEvent(session_id, e.seq, e.payload, e.type) for e in sealed]
        await self.hub.publish(live)

    async def work(self, session_id: str, steps: int = 1) -> None:
        """Let the turn go on for a while."""
        for _ in range(steps):
            await self.append(session_id, PhaseEntered(None, Phase.OBSERVE))

    async def finish(
        self, session_id: str, text: str = "42", reason: StopReason = StopReason.FINAL_ANSWER
    ) -> None:
        """End the turn."""
        ended = TurnEnded(status_of(reason), reason, Result(text, complete=True), Usage())
        await self.append(session_id, ended, release=True)

    async def close(self, session_id: str) -> None:
        """End the session."""
        await self.append(session_id, SessionClosed(), release=True)

    def doubt(self, session_id: str, call_id: str) -> None:
        """Let it wait for somebody to say whether a call happened."""
        calls = [{"call_id": call_id, "name": "calculate"}]
        self.wait(session_id, {"kind": "verification", "calls": calls})

    def hand_over(self, session_id: str, call_id: str) -> None:
        """Let it wait for the client to carry a call out."""
        calls = [{"call_id": call_id, "name": "calculate", "wants": RESULT}]
        self.wait(session_id, {"kind": "client_tools", "calls": calls})

    def ask(self, session_id: str, call_id: str) -> None:
        """Let it wait for somebody to approve a call of `calculate`."""
        approval = {
            "id": approval_id(session_id, call_id),
            "call_id": call_id,
            "name": "calculate",
            "version": 1,
            "arguments": {"expression": "1+1"},
            "hash": "h",
            "requested_at": "2026-01-01T00:00:00.000000Z",
            "expires_at": "2226-01-01T00:00:00.000000Z",
        }
        self.wait(session_id, {"kind": "approval", "approvals": [approval]})

    def wait(self, session_id: str, pending: dict[str, object]) -> None:
        """Let it wait for something."""
        row = self.store.rows[session_id]
        facts = replace(row.facts, status="waiting", pending_kind=str(pending["kind"]))
        view = PlainCipher().seal(json.dumps({"pending": pending}).encode(), VIEW_CONTEXT)
        self.store.rows[session_id] = replace(row, facts=facts, view=view, waking=False)

    async def delta(self, session_id: str, text: str) -> None:
        """Pass a piece of text on."""
        plain = b'{"text":"%b"}' % text.encode()
        sealed = PlainCipher().seal(plain, DELTA_CONTEXT)
        await self.hub.publish([LiveEvent(session_id, None, sealed, "delta")])


class Keeping(JsonOnlyCodec):
    """A codec that tells the world of each session's first events, so that it can go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._first: Event | None = None

    @override
    def encode(self, event: Event) -> bytes:
        if event.seq == 1:
            self._first = event
        elif event.seq == 2 and self._first is not None:
            state = fold((self._first, event))
            assert state is not None
            self._world.states[state.session_id] = state
        return super().encode(event)
