"""The shape of a registration body, as the HTTP contract has it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
Names = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RequestBody(_Strict):
    """A template of a request."""

    url: Annotated[str, Field(min_length=1, max_length=4096)]
    query: Annotated[dict[str, object], Field(max_length=200)] | None = None
    headers: Annotated[dict[str, str], Field(max_length=100)] = {}
    body: object = None


class HttpBody(RequestBody):
    """How an HTTP tool is called."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"


class StatusCheckBody(RequestBody):
    """How the outcome of a call is looked up; `{idempotency_key}` stands for its key."""

    method: Literal["GET", "HEAD", "POST"] = "GET"


class ResultBody(_Strict):
    """What becomes of a result; only `max_chars` is built."""

    select: str | None = None
    views: dict[str, str] = {}
    template: str | None = None
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = 2000


class RuleBody(_Strict):
    """A business rule."""

    expr: str
    message: str


class WhenBody(_Strict):
    """Approval by rule."""

    when: str


class ToolBody(_Strict):
    """A tool as it is registered."""

    name: str
    kind: str
    description: Annotated[str, Field(min_length=1, max_length=10_000)]
    parameters: dict[str, object] = {}
    http: HttpBody | None = None
    effect: Literal["read", "idempotent", "once"] = "once"
    timeout_s: Seconds | None = None
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    approval: Literal["never", "always"] | WhenBody | None = None
    loop_ignore: Names = []
    fallback: str | None = None
    rules: Annotated[list[RuleBody], Field(max_length=100)] = []
    result: ResultBody = ResultBody()
    cache_ttl_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    polling: bool = False
    serial_group: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    depends_on: Names = []
    sensitive: Names = []
    concurrency: Annotated[int, Field(ge=1)] | None = None
    per_minute: Annotated[int, Field(ge=1)] | None = None
    status_check: StatusCheckBody | None = None
    enabled: bool = True

    def not_built(self) -> str | None:
        """Return the first field that asks for something not built yet."""
        wanted = {
            "kind": self.kind not in {"http", "builtin", "client"},
            "fallback": self.fallback is not None,
            "rules": bool(self.rules),
            "result.select": self.result.select is not None,
            "result.views": bool(self.result.views),
            "result.template": self.result.template is not None,
            "cache_ttl_s": self.cache_ttl_s != 0,
            "concurrency": self.concurrency is not None,
            "per_minute": self.per_minute is not None,
        }
        return next((field for field, asked in wanted.items() if asked), None)
