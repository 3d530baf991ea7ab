"""What the HTTP edge needs, handed over once by the wiring."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from app.api.streams.places import Places
from app.core.toolbox import ToolSpec
from app.runtime.catalog import Catalog
from app.runtime.explaining.inquiry import Inquiry
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.keys import Keyring
from app.runtime.ports.models import ModelPort
from app.runtime.ports.process import Clock, Observer
from app.runtime.ports.sessions import SessionStore
from app.runtime.ports.tools import ArgumentReader, ToolPort, ToolStore
from app.runtime.sessions.answers import Answers
from app.runtime.sessions.approvals import Approvals
from app.runtime.sessions.audience import Audience
from app.runtime.sessions.creation import Creation
from app.runtime.sessions.erasing import Erasing
from app.runtime.sessions.forks import Forks
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.schedule_records import ScheduleStore
from app.runtime.side.schedules import Schedules
from app.runtime.side.webhooks import Webhooks
from app.runtime.streams.follow import Follower

TENANT: Final = "default"
"""Whose everything is, until keys are resources."""


@dataclass(frozen=True, slots=True)
class Auth:
    """Whether a key is asked for, and the one that is right; a missing key lets nobody in."""

    required: bool
    admin_key: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedTool:
    """A registration that was accepted, and what could be better about it."""

    spec: ToolSpec
    lint_score: int
    lint_warnings: tuple[str, ...]


class ToolParser(Protocol):
    """Reads the body of a registration."""

    def __call__(self, body: dict[str, object], *, version: int, name: str | None) -> ParsedTool:
        """Return the tool; `name` is that of the path, where it has one.

        Raises:
            Invalid: naming each field at fault.
            NotSupported: when a field asks for something that is not built yet.

        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything the routes use. One for the whole process.

    `store` and `journal` are used for reading and for idempotency records, never to change a
    session. `ready` answers at least `{"ready": bool}`, with what is missing. `draining` is set
    when the process begins to end: streams and waiting requests then end at once.
    """

    creation: Creation
    sessions: Sessions
    answers: Answers
    approvals: Approvals
    forks: Forks
    erasing: Erasing
    schedules: Schedules
    schedule_store: ScheduleStore
    follower: Follower
    inquiry: Inquiry
    store: SessionStore
    journal: JournalStore
    keyring: Keyring
    clock: Clock
    catalog: Catalog
    tool_store: ToolStore
    tool_port: ToolPort
    argument_reader: ArgumentReader
    parse_tool: ToolParser
    describe_tool: Callable[[ToolSpec], Mapping[str, object]]
    models: ModelPort
    webhooks: Webhooks
    observer: Observer
    ready: Callable[[], Awaitable[Mapping[str, object]]]
    metrics: Callable[[], bytes]
    audience: Audience
    auth: Auth
    version: str
    body_limit: int = 1 << 20
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    places: Places = field(default_factory=lambda: Places(1_000_000))
