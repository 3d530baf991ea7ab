"""Ending a session that kills whoever claims it, on a path that does not fold it.

A claim that brought no effect's answer counts; at five the session is given up (design, chapter
4), since a journal that cannot be folded would otherwise be claimed for ever.
"""

from dataclasses import replace
from typing import Final

from app.core.events import NO_USAGE, Event, Result, TurnEnded
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import Phase, Status, StopReason
from app.runtime.records import Append, Claim, Release, SessionRow
from app.runtime.sealing import Sealer

MOST_CLAIMS: Final = 5


def is_poison(claim: Claim) -> bool:
    """Return whether the session was claimed too often without an effect's answer."""
    return claim.claims > MOST_CLAIMS


def obituary(claim: Claim, row: SessionRow, sealer: Sealer, at_us: int) -> Append:
    """Return the append that ends the session, written from its row alone."""
    alive = row.facts.status in {"active", "waiting"}
    sealed = sealer.seal((_ended(claim, row, at_us),), claim.head_hash) if alive else ()
    facts = row.facts
    if alive:
        facts = replace(
            facts,
            status=Status.FAILED.value,
            phase=Phase.DONE,
            stop_reason=StopReason.UNRECOVERABLE_ERROR.value,
            pending_kind=None,
            ended_at_us=at_us,
        )
    return Append(
        session_id=claim.session_id,
        epoch=claim.epoch,
        expected_head=claim.head,
        head=sealed[-1].seq if sealed else claim.head,
        head_hash=sealed[-1].hash if sealed else claim.head_hash,
        events=sealed,
        facts=facts,
        inbox_seen=claim.inbox_head,
        answered=True,
        release=Release(),
        view=None,
    )


def _ended(claim: Claim, row: SessionRow, at_us: int) -> Event:
    message = (
        f"The session could not be run: {claim.claims} claims in a row ended without an answer. "
        "Its trace is kept; start a new session, and tell the operator this session's id."
    )
    fault = Fault.of(FaultKind.INTERNAL, message)
    reason = StopReason.UNRECOVERABLE_ERROR
    body = TurnEnded(Status.FAILED, reason, Result("", complete=False), NO_USAGE, fault)
    return Event(claim.head + 1, row.facts.turn, row.facts.step, Phase.DONE, at_us, body)
