"""Ending a session that kills whoever claims it, on a path that does not fold it.

A claim that brought no effect's answer counts; at five the session is given up (design, chapter
4), since a journal that cannot be folded would otherwise be claimed for ever.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from app.core.events import NO_USAGE, Event, Result, SessionClosed, TurnEnded
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import Phase, Status, StopReason, status_of
from app.runtime.ports.journal import Append, Facts, Release
from app.runtime.ports.sessions import InboxKind, SessionRow
from app.runtime.ports.workers import Claim
from app.runtime.sealing import Sealer
from app.runtime.views import ended_view

MOST_CLAIMS: Final = 5


def is_poison(claim: Claim) -> bool:
    """Return whether the session was claimed too often without an effect's answer."""
    return claim.claims > MOST_CLAIMS


def obituary(
    claim: Claim, row: SessionRow, unseen: Collection[InboxKind], sealer: Sealer, at_us: int
) -> Append:
    """Return the append that ends the session's turn, written from its row alone.

    A turn that was waiting to begin has the number after the last one. What is in the inbox is for
    the next turn, as it would be after any other end; only if that one kills its owners as well,
    it ends too, and what was said is over with it. So nothing that was accepted leaves no event.
    """
    facts = row.facts
    open_turn = facts.status in {"active", "waiting"}
    if not open_turn and InboxKind.CLOSE in unseen:
        closed = Event(claim.head + 1, facts.turn, facts.step, Phase.DONE, at_us, SessionClosed())
        append = _rest(claim, replace(facts, status=Status.CLOSED.value), claim.inbox_head)
        return _with(append, sealer, claim, closed)
    if not open_turn and not set(unseen) - {InboxKind.CANCEL}:
        return _rest(claim, facts, claim.inbox_head)
    turn = facts.turn + 1 if facts.stop_reason else facts.turn
    ended = _ended(claim)
    event = Event(claim.head + 1, turn, facts.step, Phase.DONE, at_us, ended)
    failed = replace(
        facts,
        status=ended.status.value,
        phase=Phase.DONE,
        turn=turn,
        stop_reason=ended.stop_reason.value,
        pending_kind=None,
        ended_at_us=at_us,
    )
    append = _rest(claim, failed, claim.inbox_seen if open_turn else claim.inbox_head)
    view = sealer.view(ended_view(ended.result, ended.error))
    again = Release(at_us, at_us)  # for what the journal holds beyond this turn, should it fold now
    return replace(_with(append, sealer, claim, event), view=view, release=again)


def _with(append: Append, sealer: Sealer, claim: Claim, event: Event) -> Append:
    sealed = sealer.seal((event,), claim.head_hash)
    return replace(append, head=sealed[-1].seq, head_hash=sealed[-1].hash, events=sealed)


def laid_to_rest(claim: Claim, row: SessionRow, at_us: int) -> Append:
    """Return the append that lets an erased session rest: without its key nothing can be said."""
    closed = replace(row.facts, status=Status.CLOSED.value, pending_kind=None, ended_at_us=at_us)
    return _rest(claim, closed, claim.inbox_head)


def _rest(claim: Claim, facts: Facts, inbox_seen: int) -> Append:
    return Append(
        session_id=claim.session_id,
        epoch=claim.epoch,
        expected_head=claim.head,
        head=claim.head,
        head_hash=claim.head_hash,
        events=(),
        facts=facts,
        inbox_seen=inbox_seen,
        answered=True,
        release=Release(),
        view=None,
    )


def _ended(claim: Claim) -> TurnEnded:
    message = (
        f"The session could not be run: {claim.claims} claims in a row ended without an answer. "
        "Its trace is kept; start a new session, and tell the operator this session's id."
    )
    fault = Fault.of(FaultKind.INTERNAL, message)
    reason = StopReason.UNRECOVERABLE_ERROR
    return TurnEnded(status_of(reason), reason, Result("", complete=False), NO_USAGE, fault)
