"""A soak from its first session to its report."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from tests.chaos.lanes import ENV, Outside, outside_world
from tests.chaos.reading import Listener
from tests.chaos.user import User
from tests.chaos.verdict import Journal
from tests.integration.client import Client
from tests.integration.stack import Stack, Stacks
from tests.scripted.model import ScriptedModel
from tests.soak.fleet import Fleet
from tests.soak.sessions import KINDS, READERS, Tally, judge, pause_of
from tests.waiting import until

LEASE_S: Final = 3.0
STUCK_S: Final = 90.0
EVERY_S: Final = (2.0, 5.0)
CALM_S: Final = 6.0
"""After the last session: for as long readers, leases and idle connections may take to end."""
_BACKENDS: Final = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'surefoot'
"""
_OPEN: Final = """
select id from sessions where status in ('active', 'waiting') or inbox_head > inbox_seen
    or owner is not null
"""


@dataclass(slots=True)
class Soak:
    """What happened."""

    seconds: float
    users: int
    tally: Tally
    fleet: Fleet
    backends: list[int] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """Return everything that may not be."""
        tally = self.tally
        unended = tally.started - tally.ended
        return [
            *tally.faults,
            *(f"stuck: {name}" for name in tally.stuck),
            *(f"left open: {session_id}" for session_id in self.left_open),
            *(f"never ended: {n} {kind}" for kind, n in unended.items()),
            *(f"out of order: {request}" for request in self.refused),
            *self.fleet.faults,
        ]


async def soak(
    stacks: Stacks,
    *,
    minutes: float,
    users: int,
    seed: int = 1,
    every_s: tuple[float, float] = EVERY_S,
) -> Soak:
    """Run sessions for so long, while processes are killed; then wait for those still open."""
    chance = random.Random(seed)
    async with outside_world() as (model, outside), _fleet(stacks, model, chance, every_s) as fleet:
        client = Client(fleet.urls[0])
        await client.register(*outside.effects.specs())
        await client.close()
        made = Soak(minutes * 60, users, Tally(), fleet)
        made.backends.append(await _backends(fleet.stack))
        await _play(made, outside, chance)
        await asyncio.sleep(CALM_S)
        made.backends.append(await _backends(fleet.stack))
        made.left_open = [row["id"] for row in await fleet.stack.rows(_OPEN)]
        made.refused = list(model.violations)
        fleet.end()
        return made


@asynccontextmanager
async def _fleet(
    stacks: Stacks, model: ScriptedModel, chance: random.Random, every_s: tuple[float, float]
) -> AsyncIterator[Fleet]:
    async with stacks.open(model=model.base_url, lease_s=LEASE_S, env=ENV) as stack:
        fleet = Fleet(stack, chance, every_s)
        await fleet.start()
        yield fleet


async def _play(made: Soak, outside: Outside, chance: random.Random) -> None:
    until_s = time.monotonic() + made.seconds
    names = itertools.count(1)

    async def user() -> None:
        while time.monotonic() < until_s:
            await _one(made, outside, chance, f"u{next(names)}")

    async with asyncio.TaskGroup() as around:
        beside = [around.create_task(made.fleet.harm()), around.create_task(made.fleet.measure())]
        async with asyncio.TaskGroup() as group:
            for _ in range(made.users):
                group.create_task(user())
        for task in beside:
            task.cancel()


async def _one(made: Soak, outside: Outside, chance: random.Random, name: str) -> None:
    """Play one session with its reader, and judge it."""
    tally = made.tally
    what = chance.choices(list(KINDS), [kind.weight for kind in KINDS.values()])[0]
    reader = chance.choice(READERS)
    tally.started[what] += 1
    tally.readers[reader] += 1
    fleet = made.fleet
    user = User(name, lambda: fleet.urls, lambda: fleet.urls, outside.effects)
    listener = Listener("", lambda: fleet.urls, pause_of(reader, chance))
    try:
        async with asyncio.timeout(STUCK_S), asyncio.TaskGroup() as group:
            group.create_task(_listen(user, listener))
            await KINDS[what].play(user)
        journal = await _journal(fleet.stack, user.id)
        judge(tally, user, KINDS[what], listener, journal)
        tally.ended[what] += 1
    except TimeoutError:
        tally.stuck.append(f"{name} ({user.id}), {what}, read by a {reader} reader")
    except Exception as error:  # noqa: BLE001 - one session's fault is told in the report
        tally.faults.append(f"{name} ({user.id}), {what}: {_words(error)}")
    finally:
        await user.close()
        outside.asked.pop(name, None)


async def _listen(user: User, listener: Listener) -> None:
    await until(lambda: bool(user.id), timeout_s=STUCK_S)
    listener.session_id = user.id
    await listener.run()


async def _journal(stack: Stack, session_id: str) -> Journal:
    connection = await asyncpg.connect(stack.dsn)
    try:
        return await Journal.read(connection, stack.keys, session_id)
    finally:
        await connection.close()


async def _backends(stack: Stack) -> int:
    return int((await stack.rows(_BACKENDS))[0]["count"])


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_words(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
