"""Inbox rows: what the API puts in and the owner takes out. Payloads are JSON, sealed."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import msgspec

from app.core.canonical import Json
from app.core.events import Limits, Policy
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
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.sessions import Delivery, InboxKind, InboxRow
from app.runtime.sealing import INBOX_CONTEXT


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


def verification(cipher: SessionCipher, given: Verified) -> Delivery:
    """Return what a person says of a call in doubt; one for each call."""
    return Delivery(InboxKind.VERIFICATION, _sealed(cipher, asdict(given)), subject=given.call_id)


def approval(cipher: SessionCipher, given: ApprovalGiven) -> Delivery:
    """Return what a person decided on an approval; one for each."""
    content = asdict(given)
    return Delivery(InboxKind.APPROVAL, _sealed(cipher, content), subject=given.approval_id)


def tool_result(cipher: SessionCipher, given: ClientAnswered) -> Delivery:
    """Return what the caller's own tool returned; one for each call."""
    return Delivery(InboxKind.TOOL_RESULT, _sealed(cipher, asdict(given)), subject=given.call_id)


def read_inbox(row: InboxRow, cipher: SessionCipher, at_us: int) -> Input:
    """Return an inbox row as the input which the machine decides upon.

    What a newer release adds to a row, this one leaves out.
    """
    content = json.loads(cipher.open(row.payload, INBOX_CONTEXT))
    return msgspec.convert({**content, "at_us": at_us}, _INPUTS[row.kind], dec_hook=_any_value)


def decision(row: InboxRow, cipher: SessionCipher) -> ApprovalGiven | None:
    """Return what an inbox row decides on an approval, None when it is about something else."""
    if row.kind is not InboxKind.APPROVAL:
        return None
    content = json.loads(cipher.open(row.payload, INBOX_CONTEXT))
    return msgspec.convert(content, ApprovalGiven, dec_hook=_any_value)


_INPUTS: Final[Mapping[InboxKind, type[Input]]] = {
    InboxKind.MESSAGE: Told,
    InboxKind.RESUME: ResumeAsked,
    InboxKind.CANCEL: CancelAsked,
    InboxKind.CLOSE: CloseAsked,
    InboxKind.VERIFICATION: Verified,
    InboxKind.APPROVAL: ApprovalGiven,
    InboxKind.TOOL_RESULT: ClientAnswered,
}


def _any_value(_kind: type, value: object) -> object:
    """Accept a field that is annotated `object`: any JSON value."""
    return value
