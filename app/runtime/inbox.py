"""Inbox rows: what the API puts in and the owner takes out. Payloads are JSON, sealed."""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, Final

from app.core.canonical import Json
from app.core.events import Choice, Limits, Policy
from app.core.inputs import (
    ApprovalGiven,
    CancelAsked,
    ClientAnswered,
    CloseAsked,
    Input,
    ResumeAsked,
    Told,
    Verified,
)
from app.runtime.ports import SessionCipher
from app.runtime.records import Delivery, InboxKind, InboxRow
from app.runtime.sealing import INBOX_CONTEXT

Content = dict[str, Any]  # decoded JSON: what an API process of this or an older release wrote


def _sealed(cipher: SessionCipher, content: dict[str, Json]) -> bytes:
    return cipher.seal(json.dumps(content, ensure_ascii=False).encode(), INBOX_CONTEXT)


def message(cipher: SessionCipher, text: str, tokens: int, policy: Policy) -> Delivery:
    """Return a user message."""
    content: dict[str, Json] = {"text": text, "tokens": tokens, "policy": policy.value}
    return Delivery(InboxKind.MESSAGE, _sealed(cipher, content))


def resume(cipher: SessionCipher, limits: Limits | None, turn: int) -> Delivery:
    """Return a request to go on with a stopped turn; one for each turn."""
    content: dict[str, Json] = {"limits": None if limits is None else asdict(limits)}
    return Delivery(InboxKind.RESUME, _sealed(cipher, content), subject=f"turn:{turn}")


def cancel(cipher: SessionCipher) -> Delivery:
    """Return a request to end the turn.

    It has no subject: one that was taken without an event must not stand in the way of the next.
    """
    return Delivery(InboxKind.CANCEL, _sealed(cipher, {}))


def close(cipher: SessionCipher) -> Delivery:
    """Return a request to end the session; one for each session."""
    return Delivery(InboxKind.CLOSE, _sealed(cipher, {}), subject="session")


def verification(
    cipher: SessionCipher, call_id: str, output: Json, tokens: int, *, happened: bool
) -> Delivery:
    """Return what a person says of a call in doubt; one for each call."""
    content: dict[str, Json] = {
        "call_id": call_id,
        "happened": happened,
        "output": output,
        "tokens": tokens,
    }
    return Delivery(InboxKind.VERIFICATION, _sealed(cipher, content), subject=call_id)


def approval(cipher: SessionCipher, given: ApprovalGiven) -> Delivery:
    """Return what a person decided on an approval; one for each."""
    content = asdict(given)
    return Delivery(InboxKind.APPROVAL, _sealed(cipher, content), subject=given.approval_id)


def tool_result(cipher: SessionCipher, given: ClientAnswered) -> Delivery:
    """Return what the caller's own tool returned; one for each call."""
    return Delivery(InboxKind.TOOL_RESULT, _sealed(cipher, asdict(given)), subject=given.call_id)


def read_inbox(row: InboxRow, cipher: SessionCipher, at_us: int) -> Input:
    """Return an inbox row as the input which the machine decides upon."""
    return _READERS[row.kind](json.loads(cipher.open(row.payload, INBOX_CONTEXT)), at_us)


def decision(row: InboxRow, cipher: SessionCipher) -> ApprovalGiven | None:
    """Return what an inbox row decides on an approval, None when it is about something else."""
    if row.kind is not InboxKind.APPROVAL:
        return None
    content = json.loads(cipher.open(row.payload, INBOX_CONTEXT))
    return ApprovalGiven(**content | {"decision": Choice(content["decision"])})


def _message(content: Content, at_us: int) -> Input:
    return Told(at_us, content["text"], content["tokens"], Policy(content["policy"]))


def _resume(content: Content, at_us: int) -> Input:
    return ResumeAsked(at_us, _limits(content["limits"]))


def _verification(content: Content, at_us: int) -> Input:
    return Verified(
        at_us,
        content["call_id"],
        happened=content["happened"],
        output=content["output"],
        tokens=content["tokens"],
    )


def _approval(content: Content, at_us: int) -> Input:
    return ApprovalGiven(**content | {"at_us": at_us, "decision": Choice(content["decision"])})


def _tool_result(content: Content, at_us: int) -> Input:
    return ClientAnswered(**content | {"at_us": at_us})


_READERS: Final[dict[InboxKind, Callable[[Content, int], Input]]] = {
    InboxKind.MESSAGE: _message,
    InboxKind.RESUME: _resume,
    InboxKind.CANCEL: lambda _, at_us: CancelAsked(at_us),
    InboxKind.CLOSE: lambda _, at_us: CloseAsked(at_us),
    InboxKind.VERIFICATION: _verification,
    InboxKind.APPROVAL: _approval,
    InboxKind.TOOL_RESULT: _tool_result,
}


def _limits(content: object) -> Limits | None:
    if not isinstance(content, dict):
        return None
    known = {field.name for field in fields(Limits)}
    return Limits(**{name: value for name, value in content.items() if name in known})
