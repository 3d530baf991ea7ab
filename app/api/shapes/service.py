"""What the service tells of itself: models, health, readiness."""

from typing import Annotated, Literal

from pydantic import Field

from app.api.shapes.common import Shape


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
    problems: list[CheckOut] = Field([])
