"""What people and callers know of a call: verifications, and results of client tools.

Each is an inbox row, unique by what it is about; so of two who decide at once, one wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json, as_text, digest
from app.core.context import fault_text
from app.core.events import Event, ModelAnswered, ModelRef, ToolFinished, ToolIntended
from app.core.faults import Fault, FaultKind
from app.core.inputs import ClientAnswered
from app.core.lifecycle import PendingKind
from app.core.toolbox import MAX_CHARS
from app.runtime import inbox
from app.runtime.catalog import Catalog
from app.runtime.execution.perform import weigh
from app.runtime.past import Past
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.models import Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow
from app.runtime.ports.tools import Presenter
from app.runtime.refusals import Conflict
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.verbs import Sessions, check_not_closing
from app.runtime.views import RESULT, VERIFICATION, pending_calls, waking

_CALLS: Final = (ModelAnswered.TYPE, ToolIntended.TYPE, ToolFinished.TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """What a call returned which the client carried out; `error` where it failed."""

    call_id: str
    output: Json = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The use cases. One for the whole process."""

    clock: Clock
    sessions: Sessions
    tokens: Tokens
    past: Past
    catalog: Catalog
    present: Presenter

    async def verify(
        self,
        tenant: str,
        session_id: str,
        call_id: str,
        output: Json,
        attempt: Attempt | None,
        *,
        happened: bool,
    ) -> Answer:
        """Take what a person says of a call whose outcome is unknown.

        Raises:
            Conflict: when the session waits for no such call, or it was decided already.

        """
        model = await self.sessions.model_of(tenant, session_id)
        text = as_text(output) if output is not None else ""
        tokens = await self.tokens.count(text, model.encoding)
        async with self.sessions.locked(tenant, session_id, attempt) as (locked, earlier):
            if earlier is not None:
                return earlier
            await check_not_closing(locked)
            row = locked.row
            key = self.sessions.key(row)
            waits = row.pending_kind is PendingKind.VERIFICATION
            if not waits or call_id not in pending_calls(row, key, VERIFICATION):
                message = f"The session does not wait for a verification of {call_id!r}."
                raise Conflict(message, "verification-not-pending")
            delivery = inbox.verification(key, call_id, output, tokens, happened=happened)
            if await locked.deliver(delivery) is None:
                raise Conflict("This call was verified already.", "verification-decided")
            shown = self.sessions.shown(waking(row))
            answer = await self.sessions.remembered(locked, attempt, 202, shown)
        await self.sessions.hub.nudge(session_id)
        return answer

    async def tool_result(
        self, tenant: str, session_id: str, result: ClientResult, attempt: Attempt | None
    ) -> Answer:
        """Take the result of a call which the client carried out.

        Raises:
            Conflict: when no result of this call is wanted, or it was given already.

        """
        known = await self.sessions.known(tenant, attempt)
        if known is not None:
            return known
        opened = await self.sessions.get(tenant, session_id)
        model = await self.sessions.model_of(tenant, session_id)
        cipher = self.sessions.key(opened.row)
        name = pending_calls(opened.row, cipher, RESULT).get(result.call_id)
        if name is None:
            name = await self._wanted(opened.row, cipher, result.call_id)
        spec = (await self.catalog.current(tenant)).get(name)
        given = await self._weighed(result, model, MAX_CHARS if spec is None else spec.max_chars)
        async with self.sessions.locked(tenant, session_id, attempt) as (locked, earlier):
            if earlier is not None:
                return earlier
            await check_not_closing(locked)
            if await locked.deliver(inbox.tool_result(cipher, given)) is None:
                raise Conflict("This call has its result already.", "tool-result-given")
            shown = self.sessions.shown(waking(locked.row))
            answer = await self.sessions.remembered(locked, attempt, 202, shown)
        await self.sessions.hub.nudge(session_id)
        return answer

    async def _weighed(
        self, result: ClientResult, model: ModelRef, max_chars: int
    ) -> ClientAnswered:
        """Return a result within its bounds: the tool's own, as for what the service calls."""
        error = result.error
        if error is not None:
            error = str(self.present(error, max_chars).content or error)
        reply = self.present(result.output, max_chars)
        text = as_text(reply.output) if reply.content is None else reply.content
        if error is not None:
            text = fault_text(Fault.of(FaultKind.INTERNAL, error))
        empty, notable = weigh(reply.output, text)
        return ClientAnswered(
            at_us=self.clock.now_us(),
            call_id=result.call_id,
            output=reply.output,
            error=error,
            tokens=await self.tokens.count(text, model.encoding),
            digest=digest(reply.output),
            empty=empty and error is None,
            notable=notable and error is None,
            content=reply.content,
        )

    async def _wanted(self, row: SessionRow, cipher: SessionCipher, call_id: str) -> str:
        """Return the tool of a call whose result comes while the others of its step still run.

        Raises:
            Conflict: when the call is not the client's, not begun, or over.

        """
        events = [e async for e in self.past.events(row.id, cipher, row.head, _CALLS)]
        name = _with_client(events, call_id)
        if name is None:
            message = f"The session does not wait for a result of {call_id!r}."
            raise Conflict(message, "tool-result-not-pending")
        return name


def _with_client(events: Sequence[Event], call_id: str) -> str | None:
    """Return the tool of a call that is with the client: asked for, begun, and not over."""
    name, begun = None, False
    for event in events:
        body = event.body
        if isinstance(body, ModelAnswered):
            found = (c.name for c in body.tool_calls if c.client and c.call_id == call_id)
            name = next(found, name)
        elif isinstance(body, ToolIntended):
            begun |= body.call_id == call_id
        elif isinstance(body, ToolFinished) and body.call_id == call_id:
            return None
    return name if begun else None
