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
from app.runtime import inbox
from app.runtime.execution.perform import weigh
from app.runtime.past import Past
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.models import Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow
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
        given = await self._weighed(result, model)
        cipher = self.sessions.key(opened.row)
        if result.call_id not in pending_calls(opened.row, cipher, RESULT):
            await self._check_wanted(opened.row, cipher, result.call_id)
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

    async def _weighed(self, result: ClientResult, model: ModelRef) -> ClientAnswered:
        error = result.error
        text = as_text(result.output)
        if error is not None:
            text = fault_text(Fault.of(FaultKind.INTERNAL, error))
        empty, notable = weigh(result.output, text)
        return ClientAnswered(
            at_us=self.clock.now_us(),
            call_id=result.call_id,
            output=result.output,
            error=error,
            tokens=await self.tokens.count(text, model.encoding),
            digest=digest(result.output),
            empty=empty and error is None,
            notable=notable and error is None,
        )

    async def _check_wanted(self, row: SessionRow, cipher: SessionCipher, call_id: str) -> None:
        """Let a result pass that comes while the other calls of its step still run.

        Raises:
            Conflict: when the call is not the client's, not begun, or over.

        """
        events = [e async for e in self.past.events(row.id, cipher, row.head, _CALLS)]
        if not _wanted(events, call_id):
            message = f"The session does not wait for a result of {call_id!r}."
            raise Conflict(message, "tool-result-not-pending")


def _wanted(events: Sequence[Event], call_id: str) -> bool:
    """Return whether a call is with the client: asked for, begun, and not over."""
    with_client = begun = False
    for event in events:
        body = event.body
        if isinstance(body, ModelAnswered):
            with_client |= any(c.client and c.call_id == call_id for c in body.tool_calls)
        elif isinstance(body, ToolIntended):
            begun |= body.call_id == call_id
        elif isinstance(body, ToolFinished) and body.call_id == call_id:
            return False
    return with_client and begun
