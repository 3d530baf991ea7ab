"""What clients receive, for the document. Answers are written by the use cases, not through these.

A test compares them with real answers.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.shapes_of_calls import StatusCheckIn, WhenIn
from app.core.lifecycle import Phase, Status, StopReason

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Json = dict[str, object]


class Shape(BaseModel):
    """An answer; later releases may add fields."""

    model_config = ConfigDict(extra="allow")


class FaultOut(Shape):
    """One field at fault."""

    pointer: str
    message: str


class Problem(Shape):
    """A refusal or an error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FaultOut] = []


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


class ToolOut(Shape):
    """A tool at its current version."""

    name: str
    version: int
    kind: str
    description: str
    parameters: Json
    effect: Literal["read", "idempotent", "once"]
    approval: Literal["never", "always"] | WhenIn
    status_check: Json | None
    enabled: bool


class ToolList(Shape):
    """A page of tools, by name."""

    data: list[ToolOut]
    next: str | None


class LintOut(Shape):
    """What could be better about a definition."""

    score: int
    warnings: list[str]


class ToolSaved(Shape):
    """A tool that was registered or changed."""

    tool: ToolOut
    lint: LintOut


class HttpIn(BaseModel):
    """How an HTTP tool is called; `{name}` stands for an argument."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    query: Json | None = None
    headers: dict[str, str] = {}
    body: object = None


class ToolChangeIn(BaseModel):
    """The next version of a tool; docs/tools.md explains each field.

    Fields whose description says "default only" are part of the contract and not built yet.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["http", "mcp", "openapi", "agent", "client"] = Field(
        description="`http` or `client` (the caller carries it out); the others are not built yet."
    )
    description: str
    parameters: Json = Field(default={}, description="A JSON Schema (Draft 2020-12).")
    http: HttpIn | None = None
    effect: Literal["read", "idempotent", "once"] = "once"
    timeout_s: float | None = None
    max_attempts: int = 3
    approval: Literal["never", "always"] | WhenIn | None = Field(
        None,
        description="Whether a person must agree to each call. Not given: `always` for the method "
        "DELETE and for tools with a parameter marked as money, else `never`.",
    )
    loop_ignore: list[str] = []
    fallback: str | None = Field(None, description="Default only.")
    rules: list[Json] = Field(default=[], description="Default only.")
    result: Json = Field(default={}, description="`max_chars`; the rest default only.")
    cache_ttl_s: float = Field(0, description="Default only.")
    polling: bool = False
    serial_group: str | None = None
    depends_on: list[str] = []
    sensitive: list[str] = []
    concurrency: int | None = Field(None, description="Default only.")
    per_minute: int | None = Field(None, description="Default only.")
    status_check: StatusCheckIn | None = Field(
        None, description="For the effect `once`: how to look up a call whose outcome is unknown."
    )
    enabled: bool = True
    name: str | None = Field(None, description="That of the path, if given.")


class ToolIn(ToolChangeIn):
    """A tool to register."""

    name: str


class InvokedOut(Shape):
    """What a dry run gave: `output` when the outcome is `ok`, else `error`."""

    outcome: Literal["ok", "error", "unknown"]
    output: object = None
    error: ErrorOut | None = None
    duration_ms: float


class PricesOut(Shape):
    """Prices per million tokens."""

    input: float | None
    cached: float | None
    output: float | None


class ModelOut(Shape):
    """A language model that sessions can use."""

    name: str
    default: bool
    context_window: int
    encoding: str
    prices: PricesOut


class ModelList(Shape):
    """The models, the default first."""

    data: list[ModelOut]
    next: None


class Health(Shape):
    """The process is there."""

    status: Literal["ok"]
    version: str


class CheckOut(Shape):
    """One thing that is not as it should be."""

    check: str
    detail: str


class Readiness(Shape):
    """Whether requests can be served, what is missing, and what to do.

    `degraded` says that Redis is away: everything works, more slowly.
    """

    ready: bool
    draining: bool = False
    database: bool = True
    schema_: Annotated[bool, Field(alias="schema")] = True
    redis: bool = True
    worker: bool = True
    loop: bool = True
    loop_lag_s: float = 0.0
    degraded: bool = False
    problems: list[CheckOut] = []
