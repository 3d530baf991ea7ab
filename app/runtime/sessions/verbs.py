"""The use cases of a session, as the API calls them.

None of them appends to a session that exists: they write its inbox, in one transaction with the
idempotency record and the wake-up, and the owner does the rest (design, chapter 4).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from app.core.events import (
    ModelRef,
    Policy,
)
from app.core.lifecycle import ALIVE, Ruling, Status, Verb, rule
from app.runtime import inbox
from app.runtime.errors import Erased, KeyMissing, KeyTaken, Tampered
from app.runtime.ports.keys import Keyring, SessionCipher, WrappedKey
from app.runtime.ports.live import Hub
from app.runtime.ports.models import ModelPort, Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import InboxKind, LockedSession, SessionRow, SessionStore
from app.runtime.ports.workers import WorkerStore
from app.runtime.refusals import Conflict, FieldFault, Invalid, KeyInFlight, NotFound, NoWorker
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.creation import raised
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.rulings import check_resume, limits_of, receipt
from app.runtime.streams.follow import Follower
from app.runtime.views import session_json, to_json, waking

SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A session's row with the cipher of its content, None when that was erased."""

    row: SessionRow
    cipher: SessionCipher | None

    @property
    def content(self) -> SessionCipher:
        """Return what opens the content.

        Raises:
            Conflict: when it was erased.

        """
        if self.cipher is None:
            raise Conflict("The session's content was erased.", "session-erased")
        return self.cipher


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The use cases of sessions that exist. One for the whole process."""

    clock: Clock
    keyring: Keyring
    store: SessionStore
    workers: WorkerStore
    hub: Hub
    follower: Follower
    models: ModelPort
    tokens: Tokens
    lease_s: float
    admission: Admission
    trace_url: Callable[[str], str | None]

    def open(self, row: SessionRow) -> Opened:
        """Return a row with its cipher."""
        return Opened(row, self._cipher(row.id, row.key))

    def _cipher(self, session_id: str, key: WrappedKey) -> SessionCipher | None:
        try:
            return self.keyring.unwrap(session_id, key)
        except Erased:
            return None

    def shown(self, row: SessionRow) -> dict[str, object]:
        """Return a session as clients see it."""
        return session_json(row, self._cipher(row.id, row.key), self.trace_url)

    def seen(self, row: SessionRow, *, without_key: bool = False) -> dict[str, object]:
        """Return a session as clients see it, also one whose content does not open.

        One damaged session must not hide those beside it in a list; `without_key` says the same of
        one whose master key is not here.
        """
        try:
            return self.shown(row)
        except KeyMissing:
            if not without_key:
                raise
        except Tampered:
            pass
        return {**session_json(row, None, self.trace_url), "unreadable": True}

    async def get(self, tenant: str, session_id: str) -> Opened:
        """Return a session.

        Raises:
            NotFound: when there is none of this tenant.

        """
        return self.open(await self.row(tenant, session_id))

    async def row(self, tenant: str, session_id: str) -> SessionRow:
        """Return a session's row; its content may not open.

        Raises:
            NotFound: when there is none of this tenant.

        """
        row = await self.store.get(tenant, session_id)
        if row is None:
            raise NotFound("session", session_id)
        return row

    async def message(
        self, tenant: str, session_id: str, text: str, policy: Policy, attempt: Attempt | None
    ) -> Answer:
        """Give a session its next user message.

        Raises:
            Conflict: when it is busy and the policy is `reject`, or can take none any more.

        """
        encoding = self.model_of(await self.row(tenant, session_id)).encoding
        tokens = await self.tokens.count(text, encoding)
        await self.admission.look()
        async with self.locked(tenant, session_id, attempt) as (locked, earlier):
            if earlier is not None:
                return earlier
            row = locked.row
            await check_not_closing(locked)
            taken = receipt(row, policy)
            starts = row.status not in ALIVE
            if starts:
                self.admission.check()
            await locked.deliver(inbox.message(self.key(row), text, tokens, policy))
            shown = {"receipt": taken, "session": self.shown(waking(row))}
            answer = await self.remembered(locked, attempt, 202, shown)
        if starts:
            self.admission.took()
        await self.hub.nudge(session_id)
        return answer

    async def resume(
        self,
        tenant: str,
        session_id: str,
        limits: Mapping[str, object] | None,
        attempt: Attempt | None,
    ) -> Answer:
        """Let a stopped, failed or orphaned turn go on.

        Raises:
            Conflict: when there is nothing to go on with, or the limits that ended it still hold.

        """
        await self.admission.look()
        async with self.locked(tenant, session_id, attempt) as (locked, earlier):
            if earlier is not None:
                return earlier
            row = locked.row
            await check_not_closing(locked)
            check_resume(row, limits)
            self.admission.check()
            if row.status in {Status.RUNNING, Status.QUEUED}:
                if limits:
                    detail = "Limits are raised on a turn that a guard stopped; this one runs."
                    raise Invalid(detail, FieldFault("/limits", "Leave it out to resume now."))
                await locked.wake()
            else:
                new = None if not limits else raised(limits_of(row), limits)
                delivery = inbox.resume(self.key(row), new, row.facts.turn)
                if await locked.deliver(delivery) is None:
                    raise Conflict("This turn is being resumed already.", "resume-pending")
            shown = self.shown(waking(row))
            answer = await self.remembered(locked, attempt, 202, shown)
        self.admission.took()
        await self.hub.nudge(session_id)
        return answer

    async def cancel(self, tenant: str, session_id: str) -> Answer:
        """End the open turn and return the settled session."""
        return await self._settled(tenant, session_id, Verb.CANCEL)

    async def close(self, tenant: str, session_id: str) -> Answer:
        """End the session: no further turn; an open one is cancelled first."""
        return await self._settled(tenant, session_id, Verb.CLOSE)

    async def _settled(self, tenant: str, session_id: str, verb: Verb) -> Answer:
        row = await self.ask(tenant, session_id, verb)
        if row is not None:
            await self._wait_settled(tenant, row, verb)
        shown = self.shown(await self.row(tenant, session_id))
        return Answer(200, to_json(shown), session_id)

    async def ask(self, tenant: str, session_id: str, verb: Verb) -> SessionRow | None:
        """Put a cancel or a close into the inbox, unless it is the last thing that was said there.

        Return the row as it was then; None where there is nothing to do: an erased session has
        ended, and takes nothing any more.
        """
        async with self.locked(tenant, session_id, None) as (locked, _):
            row = locked.row
            if rule(verb, row.status) is Ruling.UNCHANGED or not row.key.wrapped:
                return None
            key = self.key(row)
            if verb is Verb.CLOSE:
                await locked.deliver(inbox.close(key))
            elif await locked.newest() is not InboxKind.CANCEL:
                await locked.deliver(inbox.cancel(key))
        await self.hub.nudge(session_id)
        return row

    async def _wait_settled(self, tenant: str, row: SessionRow, verb: Verb) -> None:
        """Wait until the owner has done it.

        Raises:
            NoWorker: when nobody did within the time that a takeover may need.

        """
        waits = SETTLE_S if await self.workers.any_alive() else SETTLE_S + self.lease_s

        async def done() -> bool:
            now = await self.row(tenant, row.id)
            return now.status is Status.CLOSED if verb is Verb.CLOSE else _has_ended(row, now)

        if await self.follower.until(row.id, done, within_s=waits):
            return
        detail = (
            f"The request to {verb.value} the session is kept and takes effect when a worker runs; "
            "none did so in time. Look at the session again later."
        )
        raise NoWorker(detail)

    def model_of(self, row: SessionRow) -> ModelRef:
        """Return the model of a session, as far as it is known here."""
        return self.models.get(row.model) or ModelRef(row.model)

    @asynccontextmanager
    async def locked(
        self, tenant: str, session_id: str, attempt: Attempt | None
    ) -> AsyncIterator[tuple[LockedSession, Answer | None]]:
        """Lock the row for a moment, with the earlier answer under the same idempotency key.

        A claim passes by a row that is locked. So if this one was due, the workers are told again
        when the lock is gone, whatever came of the request.
        """
        due = False
        try:
            async with self.store.locked(tenant, session_id) as locked:
                if locked is None:
                    raise NotFound("session", session_id)
                due = locked.row.is_due
                yield locked, await self._earlier(locked, attempt)
        except KeyTaken as taken:
            message = "Another request under this key is being carried out; try again soon."
            raise KeyInFlight(message) from taken
        finally:
            if due:
                await self.hub.nudge(session_id)

    async def known(self, tenant: str, attempt: Attempt | None) -> Answer | None:
        """Return the answer that was given under this key before, if there is one."""
        found = None if attempt is None else await self.store.recall(tenant, attempt.key)
        return None if attempt is None or found is None else attempt.replay(self.keyring, found)

    async def _earlier(self, locked: LockedSession, attempt: Attempt | None) -> Answer | None:
        found = None if attempt is None else await locked.recall(attempt.key)
        if attempt is None or found is None:
            return None
        return replace(attempt.replay(self.keyring, found), session_id=locked.row.id)

    async def remembered(
        self,
        locked: LockedSession,
        attempt: Attempt | None,
        status: int,
        shown: Mapping[str, object],
    ) -> Answer:
        """Return an answer, remembered in the same transaction where the request has a key."""
        body = to_json(shown)
        session_id = locked.row.id
        if attempt is not None:
            await locked.remember(attempt.record(self.keyring, status, body, session_id))
        return Answer(status, body, session_id)

    def key(self, row: SessionRow) -> SessionCipher:
        """Return what seals and opens the content of a session.

        Raises:
            Conflict: when it was erased.

        """
        try:
            return self.keyring.unwrap(row.id, row.key)
        except Erased as error:
            message = "The session's content was erased; it takes nothing any more."
            raise Conflict(message, "session-erased") from error


async def check_not_closing(locked: LockedSession) -> None:
    """Refuse what would come behind a request to close: nobody would ever take it out.

    Raises:
        Conflict: when the session is being closed.

    """
    if not locked.row.inbox_drained and await locked.newest() is InboxKind.CLOSE:
        message = "The session is being closed and takes nothing any more."
        raise Conflict(message, "session-ended")


def _has_ended(before: SessionRow, now: SessionRow) -> bool:
    """Return whether the turn that was open, or about to begin, has ended; the next may run.

    One that was about to begin takes its end in two steps: that it was seen is not enough.
    """
    begun = before.stop_reason is None and before.facts.turn > 0
    turn = before.facts.turn if begun else before.facts.turn + 1
    over = now.facts.turn > turn or (now.facts.turn == turn and now.stop_reason is not None)
    return now.inbox_drained and (over or now.status not in ALIVE)
