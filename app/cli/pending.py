"""What a waiting session is waiting for, and the very commands that answer it."""

import shlex
from collections.abc import Iterator

from app.cli.client import Service, command
from app.cli.values import Record, brief, clean, compact, moment, record, records, text

_REASONS = {
    "unknown_outcome": "The same call was made before and may have happened: look first.",
    "fork": "The session that this one was forked from may have made the same call.",
}


def asked(session_id: str, pending: Record, service: Service) -> str:
    """Return what the session wants to know, and how to tell it."""
    lines = [f"{session_id} waits: {brief(pending.get('kind'), 40) or 'for a person'}"]
    if question := clean(text(record(pending.get("question")).get("text"))):
        lines.append(question)
    approvals, calls = records(pending.get("approvals")), records(pending.get("calls"))
    lines += [
        f"  {brief(c.get('name') or c.get('id'), 64)} {brief(c.get('arguments'))}"
        for c in calls + approvals
    ]
    surefoot = command(service.url)
    for approval in approvals:
        lines += _approval(clean(text(approval.get("id"))), approval, surefoot)
    for call in calls:
        call_id = clean(text(call.get("call_id")))
        if _wants_result(call, pending):
            lines += _result(session_id, call_id, surefoot)
        else:
            lines += _verification(session_id, call_id, service)
    if not approvals and not calls:
        lines += ["Answer it:", f"  {surefoot} tell {session_id} TEXT"]
    return "\n".join(lines)


def _wants_result(call: Record, pending: Record) -> bool:
    """Return whether the caller is to carry the call out; an older service says it by the kind."""
    wants = "result" if pending.get("kind") == "client_tools" else "verification"
    return call.get("wants", wants) == "result"


def _approval(approval_id: str, approval: Record, surefoot: str) -> Iterator[str]:
    if told := _REASONS.get(text(approval.get("reason"))):
        yield told
    expires = moment(approval.get("expires_at"))
    until = f" until {clean(expires)}" if expires else ""
    yield f"Allow the call or not{until}; --arguments JSON allows it with other arguments:"
    yield f"  {surefoot} approve {approval_id}"
    yield f"  {surefoot} deny {approval_id} --message WHY"


def _result(session_id: str, call_id: str, surefoot: str) -> Iterator[str]:
    yield f"Carry {call_id} out, then give its result (or --error TEXT):"
    yield f"  {surefoot} result {session_id} {call_id} --output JSON"


def _verification(session_id: str, call_id: str, service: Service) -> Iterator[str]:
    """Yield the command and the request that say whether a call in doubt happened."""
    body = compact({"call_id": call_id, "outcome": "happened"})
    key = ' -H "authorization: Bearer $SUREFOOT_API_KEY"' if service.has_key else ""
    url = f"{service.url}/v1/sessions/{session_id}/verifications"
    yield f"Look whether {call_id} happened, then say so (or did_not_happen):"
    yield f"  {command(service.url)} verify {session_id} {call_id} happened"
    yield f"  curl -s {url}{key} -H 'content-type: application/json' -d {shlex.quote(body)}"
