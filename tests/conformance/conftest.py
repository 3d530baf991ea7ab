"""Each port twice: the fake, and the adapter on a real server. One suite runs on both."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from app.runtime.clock import SystemClock
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.sessions import SessionStore
from app.runtime.ports.tools import ToolStore
from app.runtime.ports.workers import WorkerStore
from app.runtime.side.schedule_records import ScheduleStore
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.migrate import migrate
from app.storage.schedules import PostgresSchedules
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from tests.fakes.schedules import MemorySchedules
from tests.fakes.store import MemoryStore
from tests.fakes.tools import MemoryTools
from tests.servers import Databases


@dataclass(frozen=True, slots=True)
class Stores:
    """The ports of one database."""

    journal: JournalStore
    sessions: SessionStore
    workers: WorkerStore
    tools: ToolStore
    schedules: ScheduleStore


@pytest.fixture(params=["fake", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    if request.param == "fake":
        store = MemoryStore(SystemClock(), way_s=0)
        schedules = MemorySchedules(SystemClock(), store.take)
        yield Stores(store, store, store, MemoryTools(), schedules)
        return
    databases: Databases = request.getfixturevalue("databases")
    dsn = await databases.create(await databases.template("migrated", migrate))
    async with Engine(dsn) as engine:
        yield Stores(
            PostgresJournal(engine),
            PostgresSessions(engine),
            PostgresWorkers(engine),
            PostgresTools(engine),
            PostgresSchedules(engine),
        )
    await databases.drop(dsn)
