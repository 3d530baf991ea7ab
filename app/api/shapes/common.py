"""What several shapes are made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

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
