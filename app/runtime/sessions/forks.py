"""Forking a session: its first events, sealed anew, and another way to go on (STATE-7).

The parent is only read. The fork is a session like any other, created in one transaction with a
journal of its own; so it has its own key, idempotency keys, trace, limits and spending.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from app.core import ids
from app.core.canonical import Json
from app.core.events import (
    Event,
    ModelAnswered,
    ModelRef,
    PhaseEntered,
    PromptRef,
    SecurityFlagged,
    SessionCreated,
    ToolFinished,
    ToolRef,
    TurnStarted,
)
from app.core.evolve import evolve
from app.core.lifecycle import Phase
from app.core.machine import traceparent
from app.core.phases.forking import Forking, GivenResult, boundary, forked
from app.core.state import QueuedText, State
from app.runtime.execution.perform import mint_trace
from app.runtime.past import Past
from app.runtime.ports.models import PromptCatalog, Tokens
from app.runtime.ports.process import Clock
from app.runtime.refusals import Conflict, FieldFault, Invalid
from app.runtime.sessions.creation import SLICE, Creation, Wanted, check_priced
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.results import Bounds
from app.runtime.sessions.verbs import Opened, Sessions
from app.runtime.views import metadata_of

MOST_EVENTS: Final = 20_000
AT_ONCE: Final = 2
"""A fork holds a whole journal in memory, opened and sealed anew: not many at a time."""

ROLE: Final = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkWanted:
    """Where to fork and what is different there; `prompts` by role: a name, and a version."""

    at_seq: int
    task: str | None = None
    model: str | None = None
    prompts: Mapping[str, tuple[str, int | None]] | None = None
    result: tuple[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """The use case. One for the whole process."""

    clock: Clock
    sessions: Sessions
    creation: Creation
    prompts: PromptCatalog
    tokens: Tokens
    past: Past
    bounds: Bounds
    sample: Callable[[str], bool]
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def fork(
        self, tenant: str, session_id: str, wanted: ForkWanted, attempt: Attempt | None
    ) -> Answer:
        """Create a session that goes on from an event of another one.

        Raises:
            Invalid: when there is no such event, model, prompt or call.
            Conflict: when the content of the parent was erased.

        """
        known = await self.sessions.known(tenant, attempt)
        if known is not None:
            return known
        await self.creation.admit()
        async with self.slots:
            return await self._forked(tenant, session_id, wanted, attempt)

    async def _forked(
        self, tenant: str, session_id: str, wanted: ForkWanted, attempt: Attempt | None
    ) -> Answer:
        parent = await self.sessions.get(tenant, session_id)
        prefix = await self._prefix(parent, wanted)
        first = prefix[0].body
        if not isinstance(first, SessionCreated):
            message = f"The journal of {session_id} does not begin with its creation."
            raise Conflict(message, "session-unreadable")
        created = await self._created(first, wanted)
        events, state = await self._taken(prefix, created)
        if state.between_turns and state.ended is None and wanted.task is None:
            fault = FieldFault("/at_seq", "No turn has begun there; give a task, or a later event.")
            raise Invalid("The fork would have nothing to do.", fault)
        check_priced(state.limits, created.model)
        asked = Forking(
            at_us=self.clock.now_us(),
            parent=session_id,
            at_seq=events[-1].seq,
            task=await self._task(wanted, created.model),
            result=await self._result(tenant, wanted, state, created.model),
            model=None if created.model.name == first.model.name else first.model.name,
            prompt=None if created.prompt == first.prompt else _named(first.prompt),
        )
        kept = Wanted(
            task="",
            metadata=metadata_of(parent.row, parent.cipher),
            on_disconnect=parent.row.on_disconnect,
        )
        return await self.creation.begin(tenant, (*events, *forked(state, asked)), kept, attempt)

    async def _prefix(self, parent: Opened, wanted: ForkWanted) -> list[Event]:
        cipher = parent.content
        if wanted.at_seq > parent.row.head:
            fault = FieldFault("/at_seq", f"The last event is {parent.row.head}.")
            raise Invalid("The session has no such event.", fault)
        if wanted.at_seq > MOST_EVENTS:
            fault = FieldFault("/at_seq", f"A fork takes up to {MOST_EVENTS} events.")
            raise Invalid("The session is too long to be forked there.", fault)
        events = self.past.events(parent.row.id, cipher, wanted.at_seq)
        prefix = [event async for event in events]
        return prefix if wanted.result is None else _without_result(prefix, wanted.result[0])

    async def _created(self, body: SessionCreated, wanted: ForkWanted) -> SessionCreated:
        now = self.clock.now_us()
        model = body.model if wanted.model is None else self.creation.model(wanted.model)
        return replace(
            body,
            session_id=ids.mint("ses", at_us=now, entropy=self.clock.entropy(10)),
            parent=body.session_id,
            model=model,
            prompt=await self._prompt(body.prompt, wanted, model),
        )

    async def _prompt(self, old: PromptRef, wanted: ForkWanted, model: ModelRef) -> PromptRef:
        prompts = wanted.prompts or {}
        for role in prompts:
            if role != ROLE:
                fault = FieldFault(f"/prompts/{role}", f"There is the role {ROLE!r} only.")
                raise Invalid("A role is not known.", fault)
        if ROLE not in prompts:
            return old
        name, version = prompts[ROLE]
        known = await self.prompts.ref(old.name, model.encoding)
        if name != known.name or version not in {None, known.version}:
            fault = FieldFault(f"/prompts/{ROLE}", f"There is {_named(known)} only.")
            raise Invalid("A prompt version is not known.", fault)
        return known

    async def _taken(
        self, prefix: list[Event], created: SessionCreated
    ) -> tuple[tuple[Event, ...], State]:
        """Return the events up to a boundary, as the fork has them, and their fold.

        A turn that is still open there goes on in a trace of its own.
        """
        begun = replace(prefix[0], body=created)
        state = reached = evolve(None, begun)
        for n, event in enumerate(prefix[1:]):
            state = evolve(state, event)
            if boundary(state):
                reached = state
            if n % SLICE == 0:
                await self.clock.sleep(0)
        events = [begun, *prefix[1 : reached.seq]]
        if not reached.between_turns:
            at = max(n for n, event in enumerate(events) if isinstance(event.body, TurnStarted))
            events[at] = self._retraced(events[at])
        return tuple(events), reached

    def _retraced(self, event: Event) -> Event:
        body = event.body
        if not isinstance(body, TurnStarted):
            return event
        trace = mint_trace(self.clock, self.sample)
        return replace(event, body=replace(body, trace=trace, link=traceparent(body.trace)))

    async def _task(self, wanted: ForkWanted, model: ModelRef) -> QueuedText | None:
        if wanted.task is None:
            return None
        return QueuedText(wanted.task, await self.tokens.count(wanted.task, model.encoding))

    async def _result(
        self, tenant: str, wanted: ForkWanted, state: State, model: ModelRef
    ) -> GivenResult | None:
        if wanted.result is None:
            return None
        call_id, output = wanted.result
        open_calls = {c.call.call_id: c.call for c in state.calls if c.result is None}
        if state.phase not in {Phase.ACT, Phase.WAITING} or call_id not in open_calls:
            message = "It is not a call of the step at `at_seq`; give the event of its result."
            raise Invalid(
                "The call is not open there.", FieldFault("/tool_result/call_id", message)
            )
        call = open_calls[call_id]
        spec = await self.creation.catalog.spec(tenant, ToolRef(call.name, call.version))
        stated = await self.bounds.stated(output, spec, model)
        return GivenResult(
            call_id,
            stated.output,
            stated.tokens,
            stated.digest,
            stated.empty,
            stated.notable,
            stated.content,
        )


def _without_result(prefix: list[Event], call_id: str) -> list[Event]:
    """Take a call's result out of the step that the journal ends in; the others stay.

    What an equal call was given of it goes too, and that a guard stopped it. A result that the
    model has answered to stays: `_result` then finds no open call.
    """
    answered = max(
        (n for n, e in enumerate(prefix) if isinstance(e.body, ModelAnswered)), default=0
    )
    for n, event in enumerate(prefix):
        body = event.body
        if n > answered and isinstance(body, ToolFinished) and body.call_id == call_id:
            rest = takewhile(lambda e: not isinstance(e.body, PhaseEntered), prefix[n + 1 :])
            kept = [e for e in rest if not _belongs(e, call_id)]
            moved = (replace(e, seq=seq) for seq, e in enumerate(kept, start=event.seq))
            return [*prefix[:n], *moved]
    return prefix


def _belongs(event: Event, call_id: str) -> bool:
    """Return whether what stands behind a call's result was said because of it."""
    body = event.body
    if isinstance(body, ToolFinished):
        return not body.executed
    return isinstance(body, SecurityFlagged) and body.call_id == call_id


def _named(prompt: PromptRef) -> str:
    return f"{prompt.name}@{prompt.version}"
