"""The parts of a tool's registration that say who agrees to a call, and what became of it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, object]


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
