"""What people and callers know of a call: verifications, and results of client tools.

Each is an inbox row, unique by what it is about; so of two who decide at once, one wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.core.canonical import Json, digest
from app.core.events import Event, ModelAnswered, ToolFinished, ToolIntended
from app.core.inputs import ClientAnswered, Verified
from app.core.lifecycle import PendingKind
from app.runtime import inbox
from app.runtime.catalog import Catalog
from app.runtime.past import Past
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow
from app.runtime.refusals import Conflict
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.results import Bounds
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
    past: Past
    catalog: Catalog
    bounds: Bounds

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
        seen = await self.sessions.row(tenant, session_id)
        given = await self._verified(seen, call_id, output, happened=happened)
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
            if await locked.deliver(inbox.verification(key, given)) is None:
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
        row = await self.sessions.row(tenant, session_id)
        cipher = self.sessions.key(row)
        name = pending_calls(row, cipher, RESULT).get(result.call_id)
        if name is None:
            name = await self._wanted(row, cipher, result.call_id)
        given = await self._answered(row, name, result)
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

    async def _answered(self, row: SessionRow, name: str, result: ClientResult) -> ClientAnswered:
        """Return a result within its bounds: the tool's own, as for what the service calls."""
        spec = (await self.catalog.current(row.tenant)).get(name)
        model = self.sessions.model_of(row)
        now_us = self.clock.now_us()
        if result.error is not None:
            error, tokens = await self.bounds.failed(result.error, spec, model)
            return ClientAnswered(now_us, result.call_id, None, error, tokens, digest(None))
        stated = await self.bounds.stated(result.output, spec, model)
        return ClientAnswered(
            at_us=now_us,
            call_id=result.call_id,
            output=stated.output,
            error=None,
            tokens=stated.tokens,
            digest=stated.digest,
            empty=stated.empty,
            notable=stated.notable,
            content=stated.content,
        )

    async def _verified(
        self, row: SessionRow, call_id: str, output: Json, *, happened: bool
    ) -> Verified:
        """Return what a person says, its output within the bounds of the call's tool."""
        given = Verified(self.clock.now_us(), call_id, happened, None, 0)
        if output is None:
            return given
        name = pending_calls(row, self.sessions.key(row), VERIFICATION).get(call_id, "")
        spec = (await self.catalog.current(row.tenant)).get(name)
        stated = await self.bounds.stated(output, spec, self.sessions.model_of(row))
        return replace(given, output=stated.output, tokens=stated.tokens, content=stated.content)

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
