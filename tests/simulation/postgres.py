"""Postgres in the simulation: statements are sent, carried out and answered, or not.

What a statement does is `tests.fakes.store`, which passes the same suite as the real one. Here is
the way to it: a statement that was sent may be carried out though its sender died or gave up, a
transaction ends with its connection, and an outage cuts everything that is under way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from typing_extensions import override

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.journal import Append, Appended, Fate
from app.runtime.ports.sessions import LockedSession, SessionRow
from tests.fakes.interposed import interposed
from tests.fakes.row import Locked, Row
from tests.fakes.store import MemoryStore
from tests.simulation.loop import PROCESS, Condition, Process, SeededLoop
from tests.simulation.weather import Weather

T = TypeVar("T")
Carried = Callable[[str, Process], None]
"""Is told after each statement: its name and who sent it."""


class OverError(BaseException):
    """The run is over; whatever still runs gets nothing any more."""


def at_once(work: Coroutine[object, object, T]) -> T:
    """Carry out a statement of the store, which waits for nothing but its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return cast("T", done.value)


@dataclass(eq=False)
class Transaction:
    """A connection that holds, or waits for, the lock on one row."""

    process: Process
    row: Row
    granted: asyncio.Future[object]
    over: bool = False


class RowLock(asyncio.Lock):
    """A row's lock as Postgres has it: held by a transaction, not by a task."""

    def __init__(self) -> None:
        super().__init__()
        self.holder: Transaction | None = None
        self.waiting: deque[Transaction] = deque()

    @override
    def locked(self) -> bool:
        return self.holder is not None


@dataclass
class Postgres:
    """The server, shared by all processes."""

    loop: SeededLoop
    weather: Weather
    store: MemoryStore
    lease_s: float
    carried: Carried
    up: bool = True
    over: bool = False
    outages: int = 0
    open: list[Transaction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._itself = Process("postgres")
        self._here = self._itself.context

    def later(self, delay_s: float, call: Callable[..., object], *given: object) -> None:
        """Do something in the server after a while, whatever becomes of the processes."""
        self.loop.call_later(delay_s, call, *given, context=self._here)

    async def append_in_turn(self, entry: Append) -> Appended:
        """Send an append that queues for its row."""
        row = self.store.rows.get(entry.session_id)
        return await self.statement(
            "append_in_turn", lambda: self.store.append_locked(entry), queues_for=row
        )

    async def statement(
        self, name: str, call: Callable[[], Awaitable[T]], *, queues_for: Row | None = None
    ) -> T:
        """Send a statement and wait for its answer.

        Raises:
            StoreUnavailable: when the answer does not come, whether it was carried out or not.

        """
        if self.over:
            raise OverError
        weather, answer = self.weather, self.loop.create_future()
        PROCESS.get().reaches(name, weather.chance)
        there_s = weather.latency_s()
        if weather.happens(weather.refused):
            self.later(there_s, _fail, answer, "refused")
            return cast("T", await answer)
        if weather.happens(weather.late):
            self.later(weather.chance.random() * self.lease_s / 4, _fail, answer, "late")
            there_s += weather.chance.random() * self.lease_s / 2
        unheard = weather.happens(weather.unheard)
        carry_out = partial(self._carry_out, name, call, answer, PROCESS.get(), unheard)  # type: ignore[arg-type]
        if queues_for is None:
            self.later(there_s, carry_out)
        else:
            self.later(there_s, self._queue, queues_for, answer, carry_out)
        return cast("T", await answer)

    def _carry_out(
        self,
        name: str,
        call: Callable[[], Coroutine[object, object, object]],
        answer: asyncio.Future[object],
        process: Process,
        unheard: bool,  # noqa: FBT001 - given by place
    ) -> None:
        if not self.up:
            _fail(answer, "down")
            return
        try:
            result = at_once(call())
        except Exception as error:  # noqa: BLE001 - whatever the server answers goes to its client
            self._answer(_raise, answer, error)
            return
        self.carried(name, process)
        if unheard:
            self._answer(_fail, answer, "unheard")
        else:
            self._answer(self._deliver, answer, result, self.outages)

    def _queue(
        self, row: Row, answer: asyncio.Future[object], carry_out: Callable[[], None]
    ) -> None:
        """Carry a statement out in its turn at a row, though its sender died or gave up."""
        turn = Transaction(self._itself, row, self.loop.create_future())

        def ends(granted: asyncio.Future[object]) -> None:
            if granted.exception() is None and not turn.over:
                carry_out()
            else:
                _fail(answer, "cut")
            self.roll_back(turn)

        def takes_too_long() -> None:
            if not turn.granted.done():
                self._deliver(answer, Appended(Fate.SKIPPED), self.outages)
                self.roll_back(turn)

        turn.granted.add_done_callback(ends, context=self._here)
        self._lock(turn)
        self.later(self.lease_s / 4, takes_too_long)

    def _answer(self, call: Callable[..., object], *given: object) -> None:
        back_s = self.weather.latency_s()
        if back_s:
            self.later(back_s, call, *given)
        else:
            call(*given)

    def _deliver(self, answer: asyncio.Future[object], result: object, outages: int) -> None:
        if outages != self.outages:
            _fail(answer, "cut")
        elif not answer.done():
            answer.set_result(result)

    # --- outages and dead clients

    def go_down(self) -> None:
        """Stop: what is under way gets no answer, open transactions are rolled back."""
        self.up = False
        self.outages += 1
        for transaction in list(self.open):
            self.roll_back(transaction)

    def lose(self, process: Process) -> None:
        """Notice that a client is gone."""
        for transaction in [t for t in self.open if t.process is process]:
            self.roll_back(transaction)

    # --- transactions

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[LockedSession | None]:
        """Lock a row until the block ends; then commit, or roll back if it ended with an error."""
        if self.over:
            raise OverError
        granted = self.loop.create_future()
        row = self.store.rows.get(session_id)
        if row is None or row.new.tenant != tenant:
            yield None
            return
        transaction = Transaction(PROCESS.get(), row, granted)
        self.later(self.weather.latency_s(), self._lock, transaction)
        try:
            await granted
            shown = await self.statement("lock", lambda: self._shown(tenant, session_id))
            locked = Locked(row, shown, self.store)
            yield cast("LockedSession", interposed(locked, self._hop))
            await self.statement("commit", lambda: self._commit(transaction, locked))
        finally:
            self.roll_back(transaction)

    async def _shown(self, tenant: str, session_id: str) -> SessionRow:
        row = await self.store.get(tenant, session_id)
        assert row is not None
        return row

    async def _hop(self, _name: str, call: Callable[[], Awaitable[object]]) -> object:
        await asyncio.sleep(self.weather.latency_s())
        return await call()

    def _lock(self, transaction: Transaction) -> None:
        if transaction.over:
            return
        if not self.up:
            _fail(transaction.granted, "down")
            return
        if transaction.process.condition is Condition.DEAD:
            return
        self.open.append(transaction)
        lock = _lock_of(transaction.row)
        lock.waiting.append(transaction)
        self._grant(lock)
        # Neither a lock nor a transaction outlives half a lease: lock_timeout and its kin.
        self.later(self.lease_s / 2, self.roll_back, transaction)

    def _grant(self, lock: RowLock) -> None:
        while lock.holder is None and lock.waiting:
            first = lock.waiting.popleft()
            if not first.over:
                lock.holder = first
                if not first.granted.done():
                    first.granted.set_result(None)

    async def _commit(self, transaction: Transaction, locked: Locked) -> None:
        if transaction.over:
            raise StoreUnavailable("The transaction was ended.")
        locked.commit(self.store.clock.now_us())
        self.roll_back(transaction)

    def roll_back(self, transaction: Transaction) -> None:
        """End a transaction, if it has not ended, and let the next one have the row."""
        if transaction.over:
            return
        transaction.over = True
        if transaction in self.open:
            self.open.remove(transaction)
        _fail(transaction.granted, "rolled back")
        lock = _lock_of(transaction.row)
        if lock.holder is transaction:
            lock.holder = None
            self._grant(lock)


def _lock_of(row: Row) -> RowLock:
    if not isinstance(row.lock, RowLock):
        row.lock = RowLock()
    return row.lock


def _fail(answer: asyncio.Future[object], why: str) -> None:
    if not answer.done():
        answer.set_exception(StoreUnavailable(why))


def _raise(answer: asyncio.Future[object], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class Connection:
    """What one process has of Postgres: the three store ports, through `postgres`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self.locked = postgres.locked
        self.append_in_turn = postgres.append_in_turn

    def __getattr__(self, name: str) -> object:
        statement, body = self._postgres.statement, getattr(self._postgres.store, name)

        async def call(*given: object, **named: object) -> object:
            return await statement(name, lambda: body(*given, **named))

        setattr(self, name, call)
        return call
