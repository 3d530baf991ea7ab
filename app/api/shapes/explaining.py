"""What explains sessions, as clients receive it."""

from typing import Literal

from pydantic import Field

from app.api.shapes.common import Json, Shape, Time
from app.api.shapes.sessions import UsageOut
from app.core.lifecycle import Phase, Status


class StateOut(Shape):
    """A folded state: the fields of the core, times as RFC 3339 and durations in seconds."""

    object: Literal["state"]
    status: str
    seq: int
    at: Time
    turn: int
    step: int
    phase: Phase | None
    limits: Json
    usage: UsageOut
    history: list[Json]
    queue: list[Json]
    calls: list[Json]
    pending: Json | None
    ended: Json | None
    owed: list[str]


class RequestOut(Shape):
    """What the model was last sent; only `seq` (null) and `messages` (none) before the first."""

    object: Literal["request"]
    seq: int | None
    messages: list[Json]
    model: str = ""
    purpose: str = ""
    tools: list[str] = Field(default_factory=list)
    intact: bool = True


class ReplayOut(Shape):
    """What a replay found; the last three only where the journal diverges."""

    object: Literal["replay"]
    identical: bool
    events: int
    code_version: str
    seq: int | None = None
    expected: Json | None = None
    actual: Json | None = None


class ExplanationOut(Shape):
    """Why a session is as it is."""

    object: Literal["explanation"]
    session: str
    status: Status
    last_seq: int
    sentences: list[str]
    owner: str | None
    owner_alive: bool
    epoch: int
    owners: list[Json]
    doing: list[str]
    wakes: list[str]
    uncertain: list[str]
    todo: list[str]


class ChainOut(Shape):
    """The chain of one session; `intact` is null where it could not be verified here."""

    session: str
    events: int
    intact: bool | None
    broken: Json | None = None
    unverified: str | None = None


class ChainList(Shape):
    """A page of chains; `intact` when each of them was verified and is."""

    intact: bool
    data: list[ChainOut]
    next: str | None
