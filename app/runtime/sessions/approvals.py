"""Approvals as a resource: bound to a call and its arguments, single use, expiring (TOOL-17).

There is no table of them. What a session waits for stands in its view, what was decided in its
journal, and the id of an approval names its session and call; so nothing can disagree.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from app.core.canonical import action_digest, as_text
from app.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Choice,
    Event,
    ModelAnswered,
    ToolFinished,
    ToolRef,
)
from app.core.ids import approval_parts
from app.core.inputs import ApprovalGiven
from app.core.lifecycle import PendingKind
from app.runtime import inbox
from app.runtime.catalog import Catalog
from app.runtime.errors import KeyMissing, Tampered
from app.runtime.paging import cut
from app.runtime.past import Past
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.models import Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionRow, SessionStore
from app.runtime.ports.tools import ArgumentReader
from app.runtime.refusals import Conflict, FieldFault, Invalid, NotFound
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.verbs import Sessions, check_not_closing
from app.runtime.times import from_rfc3339, maybe_rfc3339, rfc3339
from app.runtime.views import pending_approvals

_TYPES: Final = (
    ModelAnswered.TYPE,
    ApprovalRequested.TYPE,
    ApprovalDecided.TYPE,
    ToolFinished.TYPE,
)
_KINDS: Final = (PendingKind.APPROVAL, PendingKind.VERIFICATION)
"""What a session may wait for first while an approval is open."""
PENDING: Final = "pending"
SUPERSEDED: Final = "superseded"
_STATUS: Final = {
    Choice.APPROVE: "approved",
    Choice.DENY: "denied",
    Choice.EXPIRED: "expired",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One approval; `changed` are the arguments as the person who approved it changed them."""

    id: str
    session_id: str
    call_id: str
    name: str
    version: int
    arguments: Mapping[str, object]
    hash: str
    requested_at_us: int
    expires_at_us: int
    status: str = PENDING
    decided_at_us: int | None = None
    message: str | None = None
    changed: Mapping[str, object] | None = None
    by: str | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the approval as clients see it."""
        return {
            "id": self.id,
            "object": "approval",
            "session_id": self.session_id,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": dict(self.arguments),
            "hash": self.hash,
            "reason": self.reason,
            "status": self.status,
            "requested_at": rfc3339(self.requested_at_us),
            "expires_at": rfc3339(self.expires_at_us),
            "decided_at": maybe_rfc3339(self.decided_at_us),
            "message": self.message,
            "changed_arguments": None if self.changed is None else dict(self.changed),
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a person decides; `hash` is that of the arguments which they saw, if they say so."""

    choice: Choice
    message: str | None = None
    arguments: Mapping[str, object] | None = None
    hash: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """The use cases. One for the whole process."""

    clock: Clock
    sessions: Sessions
    store: SessionStore
    catalog: Catalog
    arguments: ArgumentReader
    tokens: Tokens
    past: Past

    async def get(self, tenant: str, approval_id: str) -> Approval:
        """Return an approval, decided or not.

        Raises:
            NotFound: when there is none of this tenant.

        """
        parts = approval_parts(approval_id)
        row = None if parts is None else await self.store.get(tenant, parts[0])
        if row is None:
            raise NotFound("approval", approval_id)
        cipher = self.sessions.open(row).cipher
        waits = _waiting(row, cipher)
        if approval_id in waits:
            return (await self._told(row, cipher, [waits[approval_id]]))[0]
        for approval in await self.of_session(row):
            if approval.id == approval_id:
                return approval
        raise NotFound("approval", approval_id)

    async def of_session(self, row: SessionRow) -> Sequence[Approval]:
        """Return every approval that a session ever asked for, oldest first."""
        cipher = self.sessions.open(row).cipher
        if cipher is None:
            return ()
        events = self.past.events(row.id, cipher, row.head, _TYPES)
        found = approvals_in(row.id, [event async for event in events])
        open_now = {str(a["id"]): a for a in pending_approvals(row, cipher)}
        shown = [_shown(row.id, open_now[a.id]) if a.id in open_now else a for a in found]
        return await self._told(row, cipher, shown)

    async def _told(
        self, row: SessionRow, cipher: SessionCipher | None, asked: Sequence[Approval]
    ) -> Sequence[Approval]:
        """Return approvals as they are with what was decided and not yet taken by the owner.

        Whoever decided must not read `pending` after his answer, though the owner be gone.
        """
        if cipher is None or row.inbox_drained:
            return asked
        rows = await self.store.inbox(row.id, row.inbox_seen)
        said = (inbox.decision(told, cipher) for told in rows)
        given = {one.approval_id: one for one in said if one is not None}
        return [
            _after(one, given[one.id]) if one.status == PENDING and one.id in given else one
            for one in asked
        ]

    async def pending(
        self, tenant: str, *, after: str | None, limit: int
    ) -> tuple[list[Approval], str | None]:
        """Return the approvals of up to `limit` waiting sessions, and the next page's cursor.

        A session whose content does not open here must not hide the others.
        """
        rows = await self.store.pending(tenant, _KINDS, after=after, limit=limit + 1)
        found: list[Approval] = []
        shown, following = cut(rows, limit)
        for row in shown:
            if row.inbox_drained:
                with suppress(KeyMissing, Tampered):
                    found.extend(_waiting(row, self.sessions.open(row).cipher).values())
        return found, following

    async def decide(
        self, tenant: str, approval_id: str, decided: Decided, attempt: Attempt | None
    ) -> Answer:
        """Take a person's decision. Only one is ever taken, and only for the arguments shown.

        Raises:
            Invalid: when changed arguments are not what the tool takes.
            Conflict: when it is decided, expired or superseded, or meant other arguments.

        """
        known = await self.sessions.known(tenant, attempt)
        if known is not None:
            return known
        approval = await self.get(tenant, approval_id)
        self._check_open(approval, decided)
        given = await self._given(tenant, approval, decided)
        async with self.sessions.locked(tenant, approval.session_id, attempt) as (locked, earlier):
            if earlier is not None:
                return earlier
            await check_not_closing(locked)
            key = self.sessions.key(locked.row)
            await self._check_still_open(locked.row, key, approval_id)
            if await locked.deliver(inbox.approval(key, given)) is None:
                message = "Somebody decided this approval already; nothing more can be decided."
                raise Conflict(message, "approval-decided")
            shown = _after(approval, given).as_json()
            answer = await self.sessions.remembered(locked, attempt, 200, shown)
        await self.sessions.hub.nudge(approval.session_id)
        return answer

    async def _check_still_open(
        self, row: SessionRow, cipher: SessionCipher, approval_id: str
    ) -> None:
        """Let a decision pass under the lock of the row: the owner writes nothing meanwhile.

        While another call of the step runs, what is open does not stand in the view.

        Raises:
            Conflict: when nothing can be decided any more.

        """
        if approval_id in _waiting(row, cipher):
            return
        told = {approval.id: approval.status for approval in await self.of_session(row)}
        status = told.get(approval_id, SUPERSEDED)
        if status != PENDING:
            raise _closed(status)

    def _check_open(self, approval: Approval, decided: Decided) -> None:
        if approval.status != PENDING:
            raise _closed(approval.status)
        if approval.expires_at_us <= self.clock.now_us():
            raise _closed(_STATUS[Choice.EXPIRED])
        if decided.hash is not None and decided.hash != approval.hash:
            message = f"The approval is for other arguments, those with the hash {approval.hash}."
            raise Conflict(message, "approval-hash-mismatch")

    async def _given(self, tenant: str, approval: Approval, decided: Decided) -> ApprovalGiven:
        model = self.sessions.model_of(await self.sessions.row(tenant, approval.session_id))
        given = ApprovalGiven(
            self.clock.now_us(),
            approval.id,
            decided.choice,
            message=decided.message,
            by=decided.by,
        )
        if decided.choice is not Choice.APPROVE or decided.arguments is None:
            said = await self.tokens.count(decided.message or "", model.encoding)
            return replace(given, note_tokens=said)
        spec = await self.catalog.spec(tenant, ToolRef(approval.name, approval.version))
        if spec is None:
            raise _closed(SUPERSEDED)
        checked = await self.arguments.read(spec, as_text(dict(decided.arguments)))
        if checked.arguments is None:
            message = "They cannot be read." if checked.fault is None else checked.fault.message
            faults = [
                FieldFault(f"/arguments{problem.pointer}", problem.message)
                for problem in checked.problems
            ] or [FieldFault("/arguments", message)]
            raise Invalid("The changed arguments are not what the tool takes.", *faults)
        note = f"A person changed the arguments of this call to {as_text(checked.arguments)}."
        return replace(
            given,
            arguments=checked.arguments,
            digest=action_digest(spec.name, checked.arguments),
            loop_digest=action_digest(spec.name, checked.arguments, spec.loop_ignore),
            note=note,
            note_tokens=await self.tokens.count(note, model.encoding),
        )


def _closed(status: str) -> Conflict:
    """Return why nothing can be decided any more."""
    slug = "approval-decided" if status in {"approved", "denied"} else f"approval-{status}"
    return Conflict(f"The approval is {status}; nothing can be decided any more.", slug)


def _waiting(row: SessionRow, cipher: SessionCipher | None) -> dict[str, Approval]:
    """Return what the session waits for to be approved, by id, in the order of the calls."""
    if cipher is None:
        return {}
    shown = (_shown(row.id, asked) for asked in pending_approvals(row, cipher))
    return {approval.id: approval for approval in shown}


def _shown(session_id: str, asked: Mapping[str, object]) -> Approval:
    """Return an approval as it stands in a session's view."""
    arguments = asked["arguments"]
    return Approval(
        id=str(asked["id"]),
        session_id=session_id,
        call_id=str(asked["call_id"]),
        name=str(asked["name"]),
        version=int(str(asked["version"])),
        arguments=arguments if isinstance(arguments, dict) else {},
        hash=str(asked["hash"]),
        requested_at_us=from_rfc3339(str(asked["requested_at"])),
        expires_at_us=from_rfc3339(str(asked["expires_at"])),
        reason=None if asked.get("reason") is None else str(asked["reason"]),
    )


def approvals_in(session_id: str, events: Iterable[Event]) -> tuple[Approval, ...]:
    """Return the approvals that a journal tells of, oldest first.

    One whose call was closed without a decision (the turn was cancelled) is superseded.
    """
    found: dict[str, Approval] = {}
    versions: dict[str, int] = {}
    for event in events:
        body = event.body
        if isinstance(body, ModelAnswered):
            versions = {call.call_id: call.version for call in body.tool_calls}
        elif isinstance(body, ApprovalRequested):
            found[body.call_id] = Approval(
                id=body.approval_id,
                session_id=session_id,
                call_id=body.call_id,
                name=body.name,
                version=versions.get(body.call_id, 0),
                arguments=body.arguments,
                hash=body.hash,
                requested_at_us=event.at_us,
                expires_at_us=body.expires_at_us,
            )
        elif isinstance(body, ApprovalDecided) and body.call_id in found:
            found[body.call_id] = replace(
                found[body.call_id],
                status=_STATUS[body.decision],
                decided_at_us=event.at_us,
                message=body.message,
                changed=body.arguments,
                by=body.by,
            )
        elif isinstance(body, ToolFinished) and body.call_id in found:
            approval = found[body.call_id]
            if approval.status == PENDING:
                found[body.call_id] = replace(approval, status=SUPERSEDED)
    return tuple(found.values())


def _after(approval: Approval, given: ApprovalGiven) -> Approval:
    return replace(
        approval,
        status=_STATUS[given.decision],
        decided_at_us=given.at_us,
        message=given.message,
        changed=given.arguments,
        by=given.by,
    )
