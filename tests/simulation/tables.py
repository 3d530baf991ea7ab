"""Other tables of the simulated Postgres: schedules, endpoints and deliveries.

What a statement does there is the fakes' (`tests.fakes.schedules`, `tests.fakes.webhooks`), which
pass the suites of the real adapters; the way to it is that of every statement.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.sessions import Remember
from app.runtime.side.schedule_records import ScheduleRow, Seen
from tests.fakes.schedules import MemorySchedules
from tests.fakes.store import MemoryStore
from tests.simulation.postgres import Postgres


class Table:
    """What one process has of a table; its statements are named `table.method`."""

    def __init__(self, postgres: Postgres, name: str, body: object) -> None:
        self._postgres = postgres
        self._name = name
        self._body = body

    def __getattr__(self, name: str) -> object:
        statement, body = self._postgres.statement, getattr(self._body, name)
        full = f"{self._name}.{name}"

        async def call(*given: object, **named: object) -> object:
            return await statement(full, lambda: body(*given, **named))

        setattr(self, name, call)
        return call


class ScheduleTable(Table):
    """The schedules, with the transaction of those who change one."""

    def __init__(
        self, postgres: Postgres, name: str, body: MemorySchedules, records: MemoryStore
    ) -> None:
        super().__init__(postgres, name, body)
        self._schedules = body
        self._records = records

    @asynccontextmanager
    async def locked(self, tenant: str, schedule_id: str) -> AsyncIterator["Changing | None"]:
        """Read under a lock, and commit what was asked in one statement.

        Where another statement came between, the lock would have made one of them wait: here the
        transaction ends with an error instead, as by a lock that was not granted in time.
        """
        seen = await self._postgres.statement("schedules.lock", lambda: self._seen(schedule_id))
        if seen is None or seen.row.tenant != tenant:
            yield None
            return
        changing = Changing(seen, self._records)
        yield changing
        await self._postgres.statement("schedules.commit", lambda: self._commit(changing))

    async def _seen(self, schedule_id: str) -> Seen | None:
        return await self._schedules.find(schedule_id)

    async def _commit(self, changing: "Changing") -> None:
        row, schedules = changing.seen.row, self._schedules
        stale = schedules.rows.get(row.id) is not row
        if stale or any(self._free(r) != said for r, said in changing.taken):
            raise StoreUnavailable("The lock was not granted in time.")
        for record, said in changing.taken:
            if said:
                self._records.take(record)
        if changing.saved is None:
            del schedules.rows[row.id]
            schedules.noted.pop(row.id, None)
        else:
            schedules.rows[row.id] = changing.saved

    def _free(self, record: Remember) -> bool:
        return self._records.known(record.tenant, record.key) is None


class Changing:
    """A schedule under its lock; what is asked of it happens at the commit."""

    def __init__(self, seen: Seen, records: MemoryStore) -> None:
        self.seen = seen
        self.saved: ScheduleRow | None = seen.row
        self.taken: list[tuple[Remember, bool]] = []
        self._records = records

    async def save(self, row: ScheduleRow) -> None:
        self.saved = row

    async def delete(self) -> None:
        self.saved = None

    async def forestall(self, record: Remember) -> bool:
        free = self._records.known(record.tenant, record.key) is None
        self.taken.append((record, free))
        return free
