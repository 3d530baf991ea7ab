"""What the table of statuses and verbs means for a request: its receipt, or why it is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.core.events import Limits, Policy
from app.core.lifecycle import Ruling, StopReason, Verb, rule
from app.runtime.ports.sessions import SessionRow
from app.runtime.refusals import Conflict
from app.runtime.sessions.creation import raised

_RECEIPTS: Final = {
    Policy.ENQUEUE: "enqueued",
    Policy.STEER: "steered",
    Policy.INTERRUPT: "interrupted",
}

_BOUNDS: Final = {
    StopReason.MAX_STEPS: "max_steps",
    StopReason.TOKEN_BUDGET: "token_budget",
    StopReason.MAX_COST: "max_cost",
    StopReason.CONSECUTIVE_ERRORS: "max_consecutive_errors",
    StopReason.REPEATED_ACTION: "max_repeat",
    StopReason.TOTAL_TIMEOUT: "total_timeout_s",
}
"""The limit that a guard's stop is about, where it is one of them."""


def limits_of(row: SessionRow) -> Limits:
    """Return the limits that hold for a session."""
    return replace(Limits(), **json.loads(row.facts.limits))


def receipt(row: SessionRow, policy: Policy) -> str:
    """Return what becomes of a message.

    Raises:
        Conflict: when the session can take none now, or none any more.

    """
    ruling = rule(Verb.MESSAGE, row.status, pending=row.pending_kind, reason=row.stop_reason)
    if ruling in {Ruling.NEXT_TURN, Ruling.ANSWER}:
        return "started"
    if ruling is Ruling.BY_POLICY and policy is not Policy.REJECT:
        return _RECEIPTS[policy]
    if ruling is Ruling.BY_POLICY:
        detail = (
            f"The session is {row.status.value}. Wait for the turn to end, or say with "
            '"when_busy" what the message does: "enqueue", "steer" or "interrupt".'
        )
        raise Conflict(detail, "session-busy")
    raise Conflict(f"The session is {row.status.value} and takes no message.", "session-ended")


def check_resume(row: SessionRow, limits: Mapping[str, object] | None) -> None:
    """Let a resume pass.

    Raises:
        Conflict: when there is nothing to go on with, or the limit that ended the turn still holds.

    """
    reason = row.stop_reason
    ruling = rule(Verb.RESUME, row.status, reason=reason, owner_alive=row.owner_alive)
    if ruling is Ruling.ACCEPT or (ruling is Ruling.ONLY_WITH_LIMITS and _raises(row, limits)):
        return
    if ruling is Ruling.ONLY_WITH_LIMITS:
        bound = _BOUNDS.get(reason, "a limit") if reason else "a limit"
        detail = f"The turn was stopped by {reason or 'a guard'}; raise {bound} to let it go on."
        raise Conflict(detail, "limits-not-raised")
    raise Conflict(f"A session that is {row.status.value} cannot be resumed.", "not-resumable")


def _raises(row: SessionRow, wanted: Mapping[str, object] | None) -> bool:
    """Return whether the limit that ended the turn would be higher, or any other one, if none."""
    old = limits_of(row)
    new = raised(old, wanted)
    bound = _BOUNDS.get(row.stop_reason) if row.stop_reason else None
    if bound is None:
        return new != old
    before, after = getattr(old, bound), getattr(new, bound)
    return before is not None and (after is None or after > before)
