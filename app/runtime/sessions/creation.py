"""Creating a session: its row, its key, its first two events, in one transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.core import ids
from app.core.events import Event, Limits, ModelRef, SessionCreated, TurnStarted
from app.core.evolve import fold, place
from app.runtime.catalog import Catalog, Frozen, UnknownToolError
from app.runtime.execution.perform import mint_trace
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import Codec, Keyring, SessionCipher
from app.runtime.ports.live import Hub
from app.runtime.ports.models import ModelPort, PromptCatalog, Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import NewSession, SessionStore
from app.runtime.refusals import FieldFault, Invalid
from app.runtime.sealing import METADATA_CONTEXT, Sealer
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.views import facts_of, session_json, to_json, view_of

AGENT: Final = "default"
PROMPT: Final = "agent"
SLICE: Final = 64
"""Events sealed before others get a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client asks for when it creates a session; None means the default."""

    task: str
    model: str | None = None
    tools: tuple[str, ...] | None = None
    limits: Mapping[str, object] | None = None
    metadata: Mapping[str, str] | None = None
    traceparent: str | None = None
    on_disconnect: str = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """The use case. One for the whole process."""

    clock: Clock
    codec: Codec
    keyring: Keyring
    store: SessionStore
    hub: Hub
    models: ModelPort
    catalog: Catalog
    prompts: PromptCatalog
    tokens: Tokens
    limits: Limits
    admission: Admission
    sample: Callable[[str], bool]
    trace_url: Callable[[str], str | None]

    async def create(self, tenant: str, wanted: Wanted, attempt: Attempt | None) -> Answer:
        """Create a session with its first turn; a worker runs it.

        Raises:
            Invalid: when the model, a tool or a limit cannot be had.
            Overloaded: when too many sessions wait already.

        """
        if attempt is not None:
            known = await self.store.recall(tenant, attempt.key)
            if known is not None:
                return attempt.replay(self.keyring, known)
        await self.admit()
        model, limits, frozen = await self._resolved(tenant, wanted)
        events = await self._first_events(wanted, model, limits, frozen)
        return await self.begin(tenant, events, wanted, attempt)

    async def admit(self) -> None:
        """Let one more session in.

        Raises:
            Overloaded: when too many sessions wait already.

        """
        await self.admission.look()
        self.admission.check()

    async def begin(
        self,
        tenant: str,
        events: tuple[Event, ...],
        wanted: Wanted,
        attempt: Attempt | None,
    ) -> Answer:
        """Store a session with these events, and let a worker go on from there."""
        state = fold(events)
        if state is None:
            message = "A session begins with its first events."
            raise ValueError(message)
        key, cipher = self.keyring.create(state.session_id)
        sealer = Sealer(self.codec, cipher)
        sealed: tuple[SealedEvent, ...] = ()
        for start in range(0, len(events), SLICE):
            head_hash = sealed[-1].hash if sealed else b""
            sealed += sealer.seal(events[start : start + SLICE], head_hash, state)
            if start:
                await self.clock.sleep(0)  # a fork may bring thousands of events
        plain = to_json(dict(wanted.metadata)) if wanted.metadata else None
        new = NewSession(
            id=state.session_id,
            tenant=tenant,
            agent=state.created.agent,
            agent_version=state.created.agent_version,
            model=state.model.name,
            mode=state.created.mode,
            prompt=f"{state.prompt.name}@{state.prompt.version}",
            facts=facts_of(state),
            key=key,
            head_hash=sealed[-1].hash,
            events=sealed,
            parent=state.created.parent,
            metadata=None if plain is None else cipher.seal(plain, METADATA_CONTEXT),
            created_at_us=state.at_us,
            view=None if state.ended is None else sealer.view(view_of(state)),
            on_disconnect=wanted.on_disconnect,
        )
        return await self._stored(new, cipher, attempt)

    async def _stored(
        self, new: NewSession, cipher: SessionCipher, attempt: Attempt | None
    ) -> Answer:
        shown = session_json(new.row(), cipher, self.trace_url)
        body = to_json(shown)
        record = None
        if attempt is not None:
            record = attempt.record(self.keyring, 201, body, new.id)
        found = await self.store.create(new, record)
        if found is not None and attempt is not None:
            return attempt.replay(self.keyring, found)
        self.admission.took()
        await self.hub.nudge(new.id)
        return Answer(201, body, new.id)

    async def check(self, tenant: str, wanted: Wanted) -> None:
        """Refuse now what creating this session would refuse.

        Raises:
            Invalid: when the model, a tool or a limit cannot be had.

        """
        await self._resolved(tenant, wanted)

    async def _resolved(self, tenant: str, wanted: Wanted) -> tuple[ModelRef, Limits, Frozen]:
        model = self.model(wanted.model)
        limits = raised(self.limits, wanted.limits)
        check_priced(limits, model)
        return model, limits, await self._freeze(tenant, wanted.tools, model)

    def model(self, name: str | None) -> ModelRef:
        """Return a model by name, the default one for None.

        Raises:
            Invalid: when there is none of this name.

        """
        model = self.models.get(name)
        if model is None:
            known = ", ".join(ref.name for ref in self.models.names())
            fault = FieldFault("/model", f"There is no model {name!r}. There are: {known}.")
            raise Invalid("The model is not known.", fault)
        return model

    async def _freeze(self, tenant: str, names: Sequence[str] | None, model: ModelRef) -> Frozen:
        try:
            return await self.catalog.freeze(tenant, names, model.encoding)
        except UnknownToolError as error:
            position = list(names or ()).index(error.name)
            message = f"There is no enabled tool {error.name!r}. There are: "
            fault = FieldFault(f"/tools/{position}", message + ", ".join(sorted(error.known)[:20]))
            raise Invalid("A tool is not known.", fault) from error

    async def _first_events(
        self, wanted: Wanted, model: ModelRef, limits: Limits, frozen: Frozen
    ) -> tuple[Event, ...]:
        now = self.clock.now_us()
        session_id = ids.mint("ses", at_us=now, entropy=self.clock.entropy(10))
        prompt = await self.prompts.ref(PROMPT, model.encoding)
        created = SessionCreated(
            session_id, AGENT, 1, "react", model, prompt, limits, tools=wanted.tools
        )
        first = place(None, created, now)
        turn = TurnStarted(
            text=wanted.task,
            tokens=await self.tokens.count(wanted.task, model.encoding),
            trace=mint_trace(self.clock, self.sample),
            tools=frozen.refs,
            tools_tokens=frozen.tokens,
            link=wanted.traceparent,
        )
        return first, place(fold((first,)), turn, now)


def check_priced(limits: Limits, model: ModelRef) -> None:
    """Let a money ceiling pass where the model has prices.

    Raises:
        Invalid: when it has none.

    """
    priced = model.price_input is not None and model.price_output is not None
    if limits.max_cost is not None and not priced:
        message = f"Set prices for the model {model.name!r} first."
        raise Invalid("The model has no prices.", FieldFault("/limits/max_cost", message))


def raised(base: Limits, wanted: Mapping[str, object] | None) -> Limits:
    """Return limits with those given put in; the border has checked names, types and ranges."""
    return replace(base, **dict(wanted)) if wanted else base  # type: ignore[arg-type]
