"""Sessions, their events and approvals, as clients receive them."""

from typing import Annotated, Literal

from pydantic import Field

from app.api.shapes.common import Json, Shape, Time
from app.core.lifecycle import Phase, Status, StopReason


class ResultOut(Shape):
    """A turn's result, the best so far also when a guard stopped it."""

    text: str
    data: object
    complete: bool | None
    confidence: float | None


class ErrorOut(Shape):
    """What went wrong."""

    kind: str
    message: str
    retry_hint: str


class UsageOut(Shape):
    """What was spent."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    tool_calls: int
    cost: float


class VersionOut(Shape):
    """Something at one of its versions."""

    name: str
    version: int


class SessionOut(Shape):
    """A session."""

    id: str
    object: Literal["session"]
    status: Status
    phase: Phase | None
    turn: int
    step: int
    stop_reason: StopReason | None
    result: ResultOut | None
    error: ErrorOut | None
    pending: Json | None
    usage: UsageOut
    limits: Json
    agent: VersionOut
    prompts: dict[str, VersionOut]
    model: str
    mode: str
    tools: list[str]
    last_seq: int
    trace_id: str
    trace_url: str | None
    parent: str | None
    on_disconnect: Literal["continue", "cancel"]
    created_at: Time
    updated_at: Time
    ended_at: Time | None
    metadata: dict[str, str]
    erased: Annotated[
        bool, Field(description="Present and true when the content was erased on request.")
    ] = False
    unreadable: Annotated[
        bool,
        Field(description="Present and true when the stored content cannot be opened here."),
    ] = False


class SessionList(Shape):
    """A page of sessions, newest first."""

    data: list[SessionOut]
    next: str | None


class ReceiptOut(Shape):
    """What became of a message."""

    receipt: Literal["started", "enqueued", "interrupted", "steered"]
    session: SessionOut


class ApprovalOut(Shape):
    """A call that needs a person's approval, bound to its arguments by their hash."""

    id: str
    object: Literal["approval"]
    session_id: str
    call_id: str
    name: str
    arguments: Json
    hash: str
    reason: Literal["policy", "unknown_outcome", "fork"] | None
    status: Literal["pending", "approved", "denied", "expired", "superseded"]
    requested_at: Time
    expires_at: Time
    decided_at: Time | None
    message: str | None
    changed_arguments: Json | None
    by: str | None


class ApprovalList(Shape):
    """A page of approvals; a session's approvals are never torn apart."""

    data: list[ApprovalOut]
    next: str | None


class EventOut(Shape):
    """An event of the trace; docs/events.md lists the data of each type."""

    seq: int
    type: str
    v: int
    at: Time
    turn: int
    step: int
    phase: Phase | None
    data: Json


class EventList(Shape):
    """A page of the trace; `next` is the sequence number to go on after."""

    data: list[EventOut]
    next: int | None
