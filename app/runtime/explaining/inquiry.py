"""Looking into a session: its state at an event, its last request, its replay, its chain, its why.

All of it is read from the journal, page by page: a page is opened and folded in a thread, so that a
long journal holds up nobody, and only a few are read at once.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.core.events import Event, ModelRequested
from app.core.evolve import BrokenJournalError, evolve
from app.core.replay import Replay
from app.core.state import State
from app.core.upcasters import UnreadableEventError
from app.runtime.errors import Erased, KeyMissing, Tampered
from app.runtime.explaining.checkup import Checkup
from app.runtime.explaining.plain import request_json, state_json
from app.runtime.explaining.standing import Known
from app.runtime.explaining.story import Story, explained
from app.runtime.paging import cut
from app.runtime.past import pages
from app.runtime.ports.journal import JournalStore, SealedEvent
from app.runtime.ports.keys import Codec, Keyring
from app.runtime.ports.models import Prompts
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow, SessionStore
from app.runtime.ports.workers import WorkerStore
from app.runtime.refusals import Conflict, FieldFault, Invalid, NotFound
from app.runtime.sealing import Sealer

MOST_EVENTS: Final = 100_000
AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """The use cases. One for the whole process."""

    clock: Clock
    codec: Codec
    keyring: Keyring
    store: SessionStore
    workers: WorkerStore
    journal: JournalStore
    prompts: Prompts
    checkup: Checkup
    version: str
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def state(self, tenant: str, session_id: str, at_seq: int | None) -> dict[str, object]:
        """Return the folded state after an event, the last one by default.

        Raises:
            Invalid: when there is no such event.

        """
        row = await self._row(tenant, session_id)
        at_seq = row.head if at_seq is None else at_seq
        if not 1 <= at_seq <= row.head:
            message = f"at_seq must be from 1 to {row.head}, the session's last event"
            raise Invalid("There is no such event.", FieldFault("/query/at_seq", message))
        folded = _Folded()
        await self._read(row, at_seq, folded.take)
        if folded.state is None:  # no session is without its first event
            raise _broken("The journal is empty.")
        return await asyncio.to_thread(state_json, folded.state)

    async def messages(self, tenant: str, session_id: str) -> dict[str, object]:
        """Return what the model was last sent; without messages when nothing was sent yet."""
        row = await self._row(tenant, session_id)
        folded = _Folded()
        await self._read(row, row.head, folded.take)
        if folded.request is None:
            return {"object": "request", "seq": None, "messages": []}
        event, body, state = folded.request
        try:
            system = self.prompts.text(body.prompt.name, body.prompt.version)
        except LookupError:
            system = None  # of a release that this one does not have
        return await asyncio.to_thread(request_json, event.seq, body, state, system)

    async def replay(self, tenant: str, session_id: str) -> dict[str, object]:
        """Decide the whole journal again, and return the first divergence."""
        row = await self._row(tenant, session_id)
        run = Replay()
        await self._read(row, row.head, run.take)
        found = await asyncio.to_thread(run.end)
        divergence = found.divergence
        shown: dict[str, object] = {
            "object": "replay",
            "identical": divergence is None,
            "events": found.events,
            "code_version": self.version,
        }
        if divergence is not None:
            shown["seq"] = divergence.seq
            shown["expected"] = self._wire(divergence.expected)
            shown["actual"] = self._wire(divergence.actual)
        return shown

    def _wire(self, event: Event | None) -> object:
        return None if event is None else json.loads(self.codec.encode(event))

    async def verify(self, tenant: str, session_id: str) -> dict[str, object]:
        """Verify a session's chain: whether nothing was changed, removed, reordered or cut."""
        return await self._verified(await self._row(tenant, session_id))

    async def verify_page(
        self, tenant: str, after: str | None, limit: int
    ) -> tuple[list[dict[str, object]], str | None]:
        """Verify the chains of a page of sessions, newest first; return also where to go on."""
        rows = await self.store.page(
            tenant, after=after, limit=limit + 1, status=None, agent=None, tool=None
        )
        found, following = cut(rows, limit)
        return [await self._verified(row) for row in found], following

    async def _verified(self, row: SessionRow) -> dict[str, object]:
        shown: dict[str, object] = {"session": row.id, "events": row.head, "intact": None}
        try:
            async with self._slots:
                broken = await self.checkup.verify(row)
        except KeyMissing as error:
            return {**shown, "unverified": str(error)}
        except (UnreadableEventError, ValueError) as error:
            return {**shown, "unverified": f"An event cannot be read by this release: {error}"}
        if broken is None:
            return {**shown, "intact": True}
        fault = {"seq": broken.seq, "fault": broken.fault.value, "detail": broken.detail}
        return {**shown, "intact": False, "broken": fault}

    async def why(self, tenant: str, session_id: str) -> dict[str, object]:
        """Explain a session in sentences, also one whose content does not open."""
        row = await self._row(tenant, session_id)
        story, closed = Story(), None
        try:
            await self._read(row, row.head, story.take)
        except Conflict as refused:
            closed = refused.detail
        except KeyMissing as error:
            closed = str(error)
        known = Known(
            row=row,
            now_us=self.clock.now_us(),
            workers_alive=await self.workers.any_alive(),
            closed=closed,
        )
        return await asyncio.to_thread(explained, story, known)

    async def _row(self, tenant: str, session_id: str) -> SessionRow:
        row = await self.store.get(tenant, session_id)
        if row is None:
            raise NotFound("session", session_id)
        return row

    async def _read(
        self, row: SessionRow, upto: int, take: Callable[[Sequence[Event]], None]
    ) -> None:
        """Hand a journal over, opened, page by page.

        Raises:
            Conflict: when it is too long for one request, was erased, or cannot be read.

        """
        if upto > MOST_EVENTS:
            message = f"The session has {upto} events; this looks at {MOST_EVENTS} at most."
            raise Conflict(message, "journal-too-long")
        try:
            sealer = Sealer(self.codec, self.keyring.unwrap(row.id, row.key))
            last = 0
            async with self._slots:
                async for page in pages(self.journal, row.id, upto):
                    await asyncio.to_thread(_opened, sealer, page, take)
                    last = page[-1].seq
        except Erased as error:
            raise Conflict("The session's content was erased.", "session-erased") from error
        except Tampered as error:
            detail = f"The session's content does not open: {error}"
            raise Conflict(detail, "session-unreadable") from error
        except UnreadableEventError as error:
            detail = f"The journal cannot be read by this release: {error}"
            raise Conflict(detail, "session-unreadable") from error
        except BrokenJournalError as error:
            raise _broken(str(error)) from error
        if last < upto:
            raise _broken(f"The journal ends at {last}, before {upto}.")


def _broken(why: str) -> Conflict:
    detail = f"{why} `GET /v1/audit/verify` and `surefoot fsck` say what is wrong with it."
    return Conflict(detail, "session-unreadable")


def _opened(
    sealer: Sealer, page: Sequence[SealedEvent], take: Callable[[Sequence[Event]], None]
) -> None:
    take([sealer.open(sealed) for sealed in page])


@dataclass(slots=True)
class _Folded:
    """The state after all events, and the last request with the state that it was made of."""

    state: State | None = None
    request: tuple[Event, ModelRequested, State] | None = None

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self.state = evolve(self.state, event)
            if isinstance(event.body, ModelRequested):
                self.request = event, event.body, self.state
