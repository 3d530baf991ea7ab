"""What a state asks for next: the effects it owes, the time it needs, and whether it may rest.

All of it is derived from the folded journal, so that nothing which must survive a crash lives
only in the memory of a worker.
"""

from dataclasses import dataclass
from typing import Final

from app.core.effects import CallModel, CallTool, CheckStatus, Effect, PrepareTurn
from app.core.lifecycle import Phase
from app.core.state import CallStage, Doubt, OpenCall, State

TOTAL_TIMEOUT: Final = "total_timeout"
VERIFICATION: Final = "verification"
APPROVAL: Final = "approval"
"""The timers there are, by name."""


def owed(state: State) -> tuple[Effect, ...]:
    """Return every effect whose answer the journal does not hold yet.

    A `once` call in doubt is not among them: it is never sent again.
    """
    if state.between_turns:
        if state.barred or (not state.queue and state.resuming is None):
            return ()
        return (PrepareTurn(f"turn:{state.turn + 1}"),)
    if state.request is not None:
        request = state.request
        key = f"model:{request.seq}:{request.attempt}"
        return (CallModel(key, request.purpose, request.attempt, request.not_before_us),)
    sent = (_call_tool(c) for c in state.calls if in_flight(c))
    asked = (_check(c, c.doubt) for c in state.calls if c.in_doubt and c.doubt is not None)
    return (*sent, *(check for check in asked if check is not None))


def in_flight(open_call: OpenCall) -> bool:
    """Return whether we are carrying this call out."""
    sent = open_call.stage is CallStage.INTENDED
    return sent and not open_call.in_doubt and not open_call.call.client


def _check(open_call: OpenCall, doubt: Doubt) -> CheckStatus | None:
    if not doubt.over or doubt.check_at_us is None:
        return None
    attempt = doubt.checks + 1
    key = f"check:{open_call.call.call_id}:{attempt}"
    return CheckStatus(key, open_call.call, attempt, doubt.check_at_us)


def _call_tool(open_call: OpenCall) -> CallTool:
    return CallTool(
        f"tool:{open_call.call.call_id}:{open_call.attempt}",
        open_call.call,
        open_call.attempt,
        open_call.not_before_us,
        open_call.intended_seq,
    )


def in_doubt(state: State) -> tuple[OpenCall, ...]:
    """Return the `once` calls whose outcome nobody here knows."""
    return tuple(c for c in state.calls if c.in_doubt)


def time_left_us(state: State, now_us: int) -> int | None:
    """Return the active time the turn still has (LOOP-9), or None while none runs."""
    if state.active_from_us is None:
        return None
    used = state.active_us + max(0, now_us - state.active_from_us)
    return max(0, int(state.limits.total_timeout_s * 1_000_000) - used)


@dataclass(frozen=True, slots=True)
class Rest:
    """The session needs no worker now; `timer_us` is when it wants one again."""

    timer_us: int | None


def resting(state: State) -> Rest | None:
    """Return how the session may be released, or None while work is owed.

    An approval that nobody gives lapses at its time. A call in doubt is put to a person only after
    the lease and the tool's own timeout are over: until then the stopped owner could still be
    waiting for its answer.
    """
    if owed(state):
        return None
    if state.between_turns:
        return Rest(None)
    if state.phase is Phase.WAITING:
        asked = (c.approval for c in state.calls if c.unapproved and c.approval is not None)
        return Rest(min((approval.expires_at_us for approval in asked), default=None))
    doubts = in_doubt(state)
    if doubts:
        return Rest(max(_doubt_over_us(state, c) for c in doubts))
    return None


def _doubt_over_us(state: State, open_call: OpenCall) -> int:
    since = 0 if open_call.doubt is None else open_call.doubt.since_us
    return since + state.lease_us + int(open_call.call.timeout_s * 1_000_000)


def due_timer(state: State, now_us: int) -> str | None:
    """Return the name of a timer which has come due for a session that was just claimed."""
    rest = resting(state)
    if rest is None or rest.timer_us is None or rest.timer_us > now_us:
        return None
    return APPROVAL if state.phase is Phase.WAITING else VERIFICATION
