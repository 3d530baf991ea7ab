"""What every driver of a process works with."""

from dataclasses import dataclass
from typing import Final

from app.runtime.execution.lease import Lease
from app.runtime.execution.perform import Performer
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.live import HotStates, Hub
from app.runtime.ports.process import Clock, Observer
from app.runtime.ports.sessions import SessionStore

STORE_RETRY_S: Final = 0.2
"""How long one waits before Postgres is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The ports and the parts of this process."""

    worker: str
    clock: Clock
    lease: Lease
    writer: JournalWriter
    journal: JournalStore
    sessions: SessionStore
    hub: Hub
    hot: HotStates
    performer: Performer
    observer: Observer
