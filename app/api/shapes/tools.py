"""Tools as clients send and receive them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.shapes.common import Json, Shape
from app.api.shapes.sessions import (
    ErrorOut,
)


class WhenIn(BaseModel):
    """Approval by rule."""

    model_config = ConfigDict(extra="forbid")

    when: str = Field(
        description="A condition in CEL over `args`; where it gives no answer, approval is needed.",
        max_length=1000,
        examples=["args.amount > 100"],
    )


class StatusCheckIn(BaseModel):
    """The request that tells whether a call took effect; 2xx: it did, 404 and 410: it did not."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["GET", "HEAD", "POST"] = "GET"
    url: str = Field(description="`{idempotency_key}` stands for the key that the call carried.")
    query: Json | None = None
    headers: dict[str, str] = {}
    body: object = None


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
