"""Sessions, appends and deliveries as the tests of storage need them, with little to say."""

import itertools
from collections.abc import Sequence

from app.runtime.ports.journal import Append, Facts, Release, SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.sessions import Delivery, InboxKind, NewSession, Remember
from app.runtime.ports.workers import Claim

_numbers = itertools.count(1)
AT_US = 1_700_000_000_000_001


def facts(status: str = "active", **others: object) -> Facts:
    known: dict[str, object] = {
        "status": status,
        "phase": None,
        "turn": 1,
        "step": 0,
        "stop_reason": None,
        "pending_kind": None,
        "usage": "{}",
        "limits": "{}",
        "trace_id": "0" * 32,
        "tools": (),
        "ended_at_us": None,
    }
    return Facts(**{**known, **others})  # type: ignore[arg-type]


def event(seq: int, payload: bytes = b"sealed") -> SealedEvent:
    return SealedEvent(seq, 1, "step.finished", "ACT", 1, 2, AT_US + seq, payload, b"h%d" % seq)


KEYS = ("dev",)
"""The master keys of a worker that has that of `new_session`."""


def new_session(tenant: str = "default", session_id: str | None = None) -> NewSession:
    return NewSession(
        id=session_id or f"ses_{next(_numbers):08}",
        tenant=tenant,
        agent="default",
        agent_version=1,
        model="demo",
        mode="react",
        prompt="agent@1",
        facts=facts(),
        key=WrappedKey("dev", b"wrapped"),
        head_hash=b"h2",
        events=(event(1), event(2)),
        parent=None,
        metadata=None,
        created_at_us=AT_US,
    )


def append(
    claim: Claim,
    *,
    events: int = 1,
    head: int | None = None,
    seen: int | None = None,
    answered: bool = False,
    release: Release | None = None,
    view: bytes | None = None,
    status: str = "active",
    tools: Sequence[str] = (),
) -> Append:
    head = claim.head if head is None else head
    made = tuple(event(head + n) for n in range(1, events + 1))
    return Append(
        session_id=claim.session_id,
        epoch=claim.epoch,
        expected_head=head,
        head=head + events,
        head_hash=b"h%d" % (head + events),
        events=made,
        facts=facts(status, tools=tuple(tools)),
        inbox_seen=claim.inbox_head if seen is None else seen,
        answered=answered,
        release=release,
        view=view,
    )


def message(payload: bytes = b"hello", subject: str | None = None) -> Delivery:
    return Delivery(InboxKind.MESSAGE, payload, subject)


def remember(key: str = "k", status: int = 201, tenant: str = "default") -> Remember:
    return Remember(tenant, key, "POST /v1/sessions", b"hash", status, b"body", None)
