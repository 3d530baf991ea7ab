"""Ending a session that kills whoever claims it, on a path that does not fold it.

A claim that brought no effect's answer counts; at five the session is given up (design, chapter
4), since a journal that cannot be folded would otherwise be claimed for ever.
"""

from dataclasses import replace
from typing import Final

from app.core.events import NO_USAGE, Event, Result, TurnEnded
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import Phase, Status, StopReason, status_of
from app.runtime.records import Append, Claim, Facts, Release, SessionRow
from app.runtime.sealing import Sealer
from app.runtime.views import ended_view

MOST_CLAIMS: Final = 5


def is_poison(claim: Claim) -> bool:
    """Return whether the session was claimed too often without an effect's answer."""
    return claim.claims > MOST_CLAIMS


def obituary(claim: Claim, row: SessionRow, sealer: Sealer, at_us: int) -> Append:
    """Return the append that ends the session, written from its row alone.

    A turn that was waiting to begin has the number after the last one.
    """
    facts = row.facts
    if facts.status not in {"active", "waiting"}:
        return _rest(claim, facts)
    turn = facts.turn + 1 if facts.stop_reason else facts.turn
    ended = _ended(claim)
    event = Event(claim.head + 1, turn, facts.step, Phase.DONE, at_us, ended)
    sealed = sealer.seal((event,), claim.head_hash)
    failed = replace(
        facts,
        status=ended.status.value,
        phase=Phase.DONE,
        turn=turn,
        stop_reason=ended.stop_reason.value,
        pending_kind=None,
        ended_at_us=at_us,
    )
    view = sealer.view(ended_view(ended.result, ended.error))
    return replace(
        _rest(claim, failed),
        head=sealed[-1].seq,
        head_hash=sealed[-1].hash,
        events=sealed,
        view=view,
    )


def laid_to_rest(claim: Claim, row: SessionRow, at_us: int) -> Append:
    """Return the append that lets an erased session rest: without its key nothing can be said."""
    closed = replace(row.facts, status=Status.CLOSED.value, pending_kind=None, ended_at_us=at_us)
    return _rest(claim, closed)


def _rest(claim: Claim, facts: Facts) -> Append:
    return Append(
        session_id=claim.session_id,
        epoch=claim.epoch,
        expected_head=claim.head,
        head=claim.head,
        head_hash=claim.head_hash,
        events=(),
        facts=facts,
        inbox_seen=claim.inbox_head,
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
