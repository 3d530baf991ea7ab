"""The rules of the HTTP contract as a small model: what each verb gives in each status.

Written from the contract's table, not from the code that keeps it.
"""

from dataclasses import dataclass
from typing import Final

from tests.integration.client import Json

ALIVE: Final = {"queued", "running", "waiting"}
RECEIPTS: Final = {"enqueue": "enqueued", "steer": "steered", "interrupt": "interrupted"}
RESUMABLE: Final = {"unrecoverable_error", "model_unavailable"}
AWAY: Final = 503


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of an answer, and the receipt of a message."""

    code: int
    receipt: str | None = None


def message(session: Json, policy: str) -> Verdict:
    """Return what a message gives."""
    status = session["status"]
    if status == "closed" or session["stop_reason"] == "security":
        return Verdict(409)
    if status not in ALIVE:
        return Verdict(202, "started")
    if status == "waiting" and session["pending"]["kind"] in {"input", "escalation"}:
        return Verdict(202, "started")
    return Verdict(409) if policy == "reject" else Verdict(202, RECEIPTS[policy])


def resume(session: Json, *, raised: bool) -> Verdict:
    """Return what a resume gives while the owner, if there is one, is alive."""
    status = session["status"]
    if status == "stopped":
        return Verdict(202 if raised else 409)
    if status == "failed" and session["stop_reason"] in RESUMABLE:
        return Verdict(202)
    return Verdict(409)
