"""What the outside sees of a session: plain columns, and the view that is sealed beside them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Final

from app.core.events import Limits, Result, Usage
from app.core.faults import Fault
from app.core.lifecycle import ALIVE, Status
from app.core.phases.holding import reason
from app.core.plan import owed
from app.core.state import OpenApproval, OpenCall, Pending, State
from app.runtime.ports.journal import Facts
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.sessions import SessionRow
from app.runtime.sealing import METADATA_CONTEXT, VIEW_CONTEXT
from app.runtime.times import rfc3339

RESULT: Final = "result"
VERIFICATION: Final = "verification"
"""What a call is waiting for."""


def to_json(value: object) -> bytes:
    """Return a value as JSON; what UTF-8 cannot carry is replaced, never sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def usage_json(usage: Usage) -> dict[str, object]:
    """Return usage as clients see it."""
    return {name: getattr(usage, name) for name in Usage.__slots__}


def limits_json(limits: Limits) -> dict[str, object]:
    """Return limits as clients see them."""
    return {name: getattr(limits, name) for name in Limits.__slots__}


@lru_cache(maxsize=1024)
def _limits_text(limits: Limits) -> str:
    """Return limits as they stand in a row: the same at each of a session's appends."""
    return json.dumps(limits_json(limits))


def facts_of(state: State) -> Facts:
    """Return the plain columns for a state; it is active as soon as a next turn is owed."""
    ended, pending = state.ended, state.pending
    if state.closed:
        status = Status.CLOSED.value
    elif ended is not None and not owed(state):
        status = ended.status.value
    else:
        status = "active" if pending is None else "waiting"
    return Facts(
        status=status,
        phase=state.phase,
        turn=state.turn,
        step=state.step,
        stop_reason=None if ended is None else ended.reason.value,
        pending_kind=None if pending is None else pending.kind.value,
        usage=json.dumps(usage_json(state.usage)),
        limits=_limits_text(state.limits),
        trace_id="" if state.trace is None else state.trace.trace_id,
        tools=tuple(ref.name for ref in state.tools),
        ended_at_us=None if ended is None else ended.at_us,
    )


def view_of(state: State) -> bytes:
    """Return what is sealed beside the row: an ended turn's result, or what the turn waits for."""
    ended = state.ended
    view = _view() if ended is None else _view(ended.result, ended.error)
    if state.pending is not None:
        view["pending"] = _pending(state, state.pending)
    return to_json(view)


def _pending(state: State, pending: Pending) -> dict[str, object]:
    """Return what the turn waits for: `approvals` to be decided, `calls` whose result is wanted."""
    shown: dict[str, object] = {"kind": pending.kind}
    asked = [_approval(state, c, c.approval) for c in state.calls if c.unapproved and c.approval]
    if asked:
        shown["approvals"] = asked
    calls = [_call(c) for c in state.calls if c.in_doubt or c.with_client]
    if calls or not asked:
        shown["calls"] = calls
    return shown


def _call(open_call: OpenCall) -> dict[str, object]:
    call = open_call.call
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "wants": RESULT if open_call.with_client else VERIFICATION,
    }


def _approval(state: State, open_call: OpenCall, asked: OpenApproval) -> dict[str, object]:
    call = open_call.call
    return {
        "id": asked.approval_id,
        "call_id": call.call_id,
        "name": call.name,
        "version": call.version,
        "arguments": call.arguments,
        "hash": call.digest,
        "requested_at": rfc3339(asked.requested_at_us),
        "expires_at": rfc3339(asked.expires_at_us),
        "reason": reason(state, call),
    }


def ended_view(result: Result, error: Fault | None) -> bytes:
    """Return the view of a turn that has ended."""
    return to_json(_view(result, error))


def _view(result: Result | None = None, error: Fault | None = None) -> dict[str, object]:
    shown = None
    if error is not None:
        shown = {"kind": error.kind, "message": error.message, "retry_hint": error.retry_hint}
    return {
        "result": None if result is None else asdict(result),
        "pending": None,
        "error": shown,
    }


def _opened(cipher: SessionCipher | None, sealed: bytes | None, context: bytes) -> object:
    if cipher is None or sealed is None:
        return None
    return json.loads(cipher.open(sealed, context))


def pending_of(row: SessionRow, cipher: SessionCipher | None) -> Mapping[str, object]:
    """Return what a session waits for, whatever is in its inbox; empty when for nothing."""
    view = _opened(cipher, row.view, VIEW_CONTEXT)
    pending = view.get("pending") if isinstance(view, dict) else None
    return pending if isinstance(pending, dict) and row.pending_kind is not None else {}


def pending_calls(row: SessionRow, cipher: SessionCipher, wants: str) -> dict[str, str]:
    """Return the calls for which a session waits, with their tools: a result or a verification."""
    calls = pending_of(row, cipher).get("calls")
    found = calls if isinstance(calls, list) else []
    wanted = (call for call in found if call.get("wants", VERIFICATION) == wants)
    return {call["call_id"]: call["name"] for call in wanted}


def pending_approvals(row: SessionRow, cipher: SessionCipher) -> list[dict[str, object]]:
    """Return the approvals for which a session waits, as they stand in its view."""
    asked = pending_of(row, cipher).get("approvals")
    return asked if isinstance(asked, list) else []


def waking(row: SessionRow) -> SessionRow:
    """Return the row as it is once the transaction has committed: due, with its inbox filled."""
    return replace(row, waking=True, inbox_head=row.inbox_head + 1)


def metadata_of(row: SessionRow, cipher: SessionCipher | None) -> dict[str, str]:
    """Return a session's metadata; none when its content was erased."""
    found = _opened(cipher, row.metadata, METADATA_CONTEXT)
    return found if isinstance(found, dict) else {}


def session_json(
    row: SessionRow,
    cipher: SessionCipher | None,
    trace_url: Callable[[str], str | None],
) -> dict[str, object]:
    """Return a session as clients see it; `cipher` None when its content was erased."""
    facts = row.facts
    status = row.status
    alive = status in ALIVE
    view = _opened(cipher, row.view, VIEW_CONTEXT)
    seen: Mapping[str, object] = view if isinstance(view, dict) else {}
    prompt_name, _, prompt_version = row.prompt.partition("@")
    waiting = status is Status.WAITING
    return {
        "id": row.id,
        "object": "session",
        "status": status.value,
        "phase": facts.phase,
        "turn": facts.turn,
        "step": facts.step,
        "stop_reason": None if alive else facts.stop_reason,
        "result": None if alive else seen.get("result"),
        "error": None if alive else seen.get("error"),
        "pending": seen.get("pending") if waiting else None,
        "usage": json.loads(facts.usage),
        "limits": json.loads(facts.limits),
        "agent": {"name": row.agent, "version": row.agent_version},
        "prompts": {"agent": {"name": prompt_name, "version": int(prompt_version or 1)}},
        "model": row.model,
        "mode": row.mode,
        "tools": list(facts.tools),
        "last_seq": row.head,
        "trace_id": facts.trace_id,
        "trace_url": trace_url(facts.trace_id),
        "parent": row.parent,
        "on_disconnect": row.on_disconnect,
        "created_at": rfc3339(row.created_at_us),
        "updated_at": rfc3339(row.updated_at_us),
        "ended_at": None if alive or not facts.ended_at_us else rfc3339(facts.ended_at_us),
        "metadata": metadata_of(row, cipher),
        **({} if row.key.wrapped else {"erased": True}),
    }
