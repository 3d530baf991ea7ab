"""The world of a history: servers that may go away, processes that may be killed, one loop.

A history is played from synchronous code, as hypothesis does it; everything runs on a loop in a
thread of its own, so that models, tools and watches live between its steps.
"""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import asyncpg
import httpx2

from app.core.events import MessageReceived, TurnStarted
from app.devstack import PostgresHandle, ValkeyHandle
from tests.chaos.effects import Effects
from tests.chaos.servers import servers
from tests.chaos.verdict import Journal, faults_of
from tests.histories.table import AWAY
from tests.histories.watching import GONE, Watch
from tests.histories.words import MOST_STEPS, Model, held_op
from tests.integration.client import Client, Json
from tests.integration.process import Process
from tests.integration.stack import Stack, bad_lines
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.waiting import until

LEASE_S: Final = 3.0
QUIET_S: Final = 45.0
FREEZE_S: Final = 0.7
STILL_S: Final = 0.2
DOUBT_S: Final = 1.5
_ROW: Final = """
select s.owner is not null and exists (
        select from workers w where w.id = s.owner and w.lease_until > now()) as owned,
    s.inbox_head = s.inbox_seen as drained, s.owner is null and s.wake_at is null as rests,
    s.head
from sessions s where s.id = $1
"""


@dataclass(slots=True)
class Talk:
    """A session of a history, with what was said to it and accepted."""

    id: str
    said: list[str]
    forked_from: "Talk | None" = None

    @property
    def heard(self) -> list[str]:
        """Return everything in its history, also what was said before it was forked."""
        return [*(self.forked_from.heard if self.forked_from else ()), *self.said]


@dataclass(slots=True)
class World:
    """Two API processes and two workers over servers of their own."""

    stack: Stack
    effects: Effects
    model: Model
    endpoint: ScriptedModel
    postgres: PostgresHandle
    valkey: ValkeyHandle
    watch: Watch
    apis: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, which: int) -> Client:
        """Return a client of one of the API processes."""
        url = self.apis[which % len(self.apis)].url
        return self.clients.setdefault(url, Client(url))

    async def post(self, which: int, path: str, body: object) -> httpx2.Response:
        """Post under a key until there is an answer other than that a server is away."""
        headers = {"Idempotency-Key": f"key-{next(self.numbers)}"}
        for attempt in itertools.count(which):
            try:
                r = await self.client(attempt).http.post(path, json=body, headers=headers)
            except httpx2.TransportError:
                r = None
            if r is not None and r.status_code != AWAY and "in-flight" not in r.text:
                return r
            await asyncio.sleep(0.05)
        raise AssertionError

    async def get(self, path: str) -> Json:
        """Return what is there, from whichever process answers."""
        for attempt in itertools.count():
            try:
                r = await self.client(attempt).http.get(path)
            except httpx2.TransportError:
                r = None
            if r is not None and r.status_code != AWAY:
                assert r.status_code == httpx2.codes.OK, r.text
                found: Json = r.json()
                return found
            await asyncio.sleep(0.05)
        raise AssertionError

    async def look(self, talk: Talk) -> Json:
        """Return a session."""
        return await self.get(f"/v1/sessions/{talk.id}")

    def hold_for(self, said: str) -> None:
        """Hold what the words say that is held."""
        op = held_op(said)
        if op is not None:
            self.effects.hold("sent", op)

    def let_go(self, said: str) -> None:
        """Release what these words hold."""
        self.model.holds.setdefault(said, Hold()).release()
        op = held_op(said)
        if op is not None:
            self.effects.hold("sent", op).release()

    async def quiet(self, talk: Talk) -> Json:
        """Return the session once nothing more happens to it of itself.

        It rests, or its owner lives and waits for a model or tool which is held.
        """
        shown: Json = {}
        head, since = -1, 0.0

        async def is_quiet() -> bool:
            nonlocal shown, head, since
            try:
                (row,) = await self.stack.rows(_ROW, talk.id)
            except GONE:
                return False
            now = time.monotonic()
            if row["head"] != head:
                head, since = row["head"], now
            if not row["drained"]:
                return False
            shown = await self.look(talk)
            if row["rests"]:
                return shown["status"] not in {"queued", "running"}
            still = now - since > STILL_S
            return row["owned"] and still and self._is_held(talk)

        try:
            await until(is_quiet, timeout_s=QUIET_S)
        except TimeoutError:
            rows = await self.stack.rows(_ROW, talk.id)
            raise AssertionError(f"{talk.id} never came to rest: {shown} {rows}") from None
        return shown

    def _is_held(self, talk: Talk) -> bool:
        """Return whether a model's answer or a tool's is held for this session now."""
        answers = (self.model.holds.get(said) for said in talk.heard)
        calls = (self.effects.holds.get(("sent", held_op(s) or "")) for s in talk.heard)
        return any(hold is not None and hold.holding for hold in (*answers, *calls))

    async def harm(self, what: str) -> None:
        """Let an accident happen: to `worker N` or `api N`, to `redis` or `postgres`."""
        kind, _, which = what.partition(" ")
        match kind:
            case "worker":
                await self._kill(self.workers, int(which))
            case "api":
                await self._kill(self.apis, int(which))
            case "postgres":
                await self.postgres.restart()
            case _ if which:
                os.kill(self.valkey.pid, signal.SIGSTOP)
                await asyncio.sleep(FREEZE_S)
                os.kill(self.valkey.pid, signal.SIGCONT)
            case _:
                await self.valkey.kill()
                await self.valkey.start()

    async def owner_of(self, talk: Talk) -> int:
        """Return which worker owns a session; any, when it has no owner."""
        owner = await self.stack.owner(talk.id)
        return next((n for n, w in enumerate(self.workers) if w.worker == owner), 0)

    async def _kill(self, processes: list[Process], which: int) -> None:
        """Kill a process and start another one in its place."""
        old = processes[which]
        old.kill()
        await old.wait()
        processes[which] = await self.stack.start(old.role)

    async def judge(self, talk: Talk) -> list[str]:
        """Return what is wrong with a session, from its journal and at the tools."""
        connection = await asyncpg.connect(self.stack.dsn)
        try:
            journal = await Journal.read(connection, self.stack.keys, talk.id)
        finally:
            await connection.close()
        found = faults_of(journal)
        received = [e.body.text for e in journal.events if isinstance(e.body, MessageReceived)]
        started = [e.body.text for e in journal.events if isinstance(e.body, TurnStarted)]
        for said in talk.said if talk.forked_from else talk.said[1:]:
            if received.count(said) != 1:
                found.append(f"{said!r} was received {received.count(said)} times")
        found += [
            f"{s!r} began {started.count(s)} turns" for s in talk.said if started.count(s) > 1
        ]
        return [f"{talk.id}: {fault}" for fault in found]

    def effect_faults(self) -> list[str]:
        """Return the keys under which a `once` tool was called more than once."""
        again = [key for key, n in self.effects.by_key.items() if n > 1]
        return [f"{key} had {self.effects.by_key[key]} effects" for key in again]

    def process_faults(self) -> list[str]:
        """Return what processes logged and may not, and which of them have ended by themselves."""
        dead = [p.log.name for p in (*self.apis, *self.workers) if not p.alive]
        logged = [line for p in self.stack.processes if p.checked for line in bad_lines(p)]
        return [*(f"{name} has ended" for name in dead), *logged]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Start all of it."""
    model = Model()
    async with (
        servers() as ground,
        Effects() as effects,
        ScriptedModel(model, strict=False, keep_requests=False) as endpoint,
        ground.stacks.open(
            model=endpoint.base_url,
            lease_s=LEASE_S,
            env={
                "SUREFOOT_TOOL_TIMEOUT_S": "600",
                "SUREFOOT_TOTAL_TIMEOUT_S": "3000",
                "SUREFOOT_MAX_STEPS": str(MOST_STEPS),
            },
        ) as stack,
    ):
        watch = Watch(stack.dsn)
        made = World(stack, effects, model, endpoint, ground.postgres, ground.valkey, watch)
        made.apis = [await stack.start("api") for _ in range(2)]
        made.workers = [await stack.start("worker") for _ in range(2)]
        await made.client(0).register(*effects.specs(pay=DOUBT_S))
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.run())
                yield made
                watching.cancel()
        finally:
            for client in made.clients.values():
                await client.close()
