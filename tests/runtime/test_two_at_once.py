"""Two requests to one session at once: the second must not keep the workers from it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

import pytest

from app.core.events import Policy
from app.runtime.execution import worker
from app.runtime.ports.sessions import LockedSession
from app.runtime.refusals import Conflict
from tests.fakes.store import MemoryStore
from tests.runtime.test_sessions import attempt
from tests.runtime.world import TENANT, World
from tests.waiting import until


class Held:
    """A store for two: the second waits for the row, and leaves it when a claim has passed by."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._both_there = asyncio.Event()
        self.passed_by = asyncio.Event()
        self.came = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[LockedSession | None]:
        self.came += 1
        goes_on = self._both_there if self.came == 1 else self.passed_by
        if self.came == 2:
            self._both_there.set()
        async with self._store.locked(tenant, session_id) as locked:
            try:
                yield locked
            finally:
                await goes_on.wait()

    async def between(self, name: str, call: Callable[[], Awaitable[object]]) -> object:
        answer = await call()
        rows = self._store.rows.values()
        if name == "claim" and not answer and any(r.inbox_head and r.lock.locked() for r in rows):
            self.passed_by.set()
        return answer


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "POLL_S", 1000.0)


@pytest.mark.parametrize("again", [False, True], ids=["another", "the same again"])
async def test_what_the_first_said_is_taken_though_the_second_held_the_row(
    world: World, *, again: bool
) -> None:
    held = Held(world.store)
    sessions = replace(world.sessions, store=held)  # type: ignore[arg-type]
    key = attempt("k") if again else None
    async with world.running(world.node(between=held.between)), asyncio.timeout(60):
        session = await world.create()
        await world.until_turn(session, 1)

        async def second() -> None:
            with nullcontext() if again else pytest.raises(Conflict):
                await sessions.message(TENANT, session, "more", Policy.REJECT, key)

        async with asyncio.TaskGroup() as group:
            group.create_task(sessions.message(TENANT, session, "more", Policy.REJECT, key))
            await until(lambda: held.came == 1)
            group.create_task(second())
        assert held.passed_by.is_set()
        left_s = world.clock.boot_s()
        await world.until_turn(session, 2)
    assert world.clock.boot_s() - left_s < 1, "nor was it found by chance, at a renewal"
