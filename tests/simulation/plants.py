"""Builds with one known fault each. The simulation must find every one of them.

Each takes out one protective mechanism, by a subclass or something put before a port: nothing in
app/ knows of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from typing_extensions import override

from app.core import plan
from app.core.draft import Draft
from app.core.lifecycle import StopReason
from app.core.phases import ending
from app.core.state import OpenCall, State
from app.runtime.errors import ToolFailure
from app.runtime.execution.lease import Lease
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate
from app.runtime.ports.live import Hub, LiveEvent
from app.runtime.ports.sessions import InboxRow, NewSession, Remember, Remembered, SessionStore
from app.runtime.ports.tools import ToolPort, ToolReply, ToolRequest
from app.runtime.streams.follow import Follower
from tests.fakes.store import Switches
from tests.simulation.build import SOUND, Build, SimStore
from tests.simulation.planting import Around, patched
from tests.simulation.side_plants import BESIDE

# --- the store


@dataclass
class NoEpochCheck(SimStore):
    """Anybody appends who knows the head."""

    on: Switches = field(default_factory=lambda: Switches(epoch=False))


@dataclass
class NoHeadCheck(SimStore):
    """An append is written wherever the journal stands."""

    on: Switches = field(default_factory=lambda: Switches(head=False))


@dataclass
class BlindRelease(SimStore):
    """A release does not look into the inbox again."""

    on: Switches = field(default_factory=lambda: Switches(inbox_at_release=False))


@dataclass
class GreedyClaim(SimStore):
    """A claim succeeds against an owner whose lease holds."""

    on: Switches = field(default_factory=lambda: Switches(living_owner=False))


@dataclass
class TimerErased(SimStore):
    """A release forgets its timer."""

    @override
    def _append(self, entry: Append) -> Appended:
        answer = super()._append(entry)
        if answer.released:
            self.rows[entry.session_id].timer_us = None
        return answer


@dataclass
class RuthlessSweep(SimStore):
    """The sweep takes sessions away without asking for the lease of their owner."""

    @override
    async def sweep(self) -> int:
        for row in self.rows.values():
            if row.owner is not None:
                row.owner, row.wake_us = None, self.clock.now_us()
        return 0


@dataclass
class NoSweep(SimStore):
    """Nobody looks for sessions whose owner is gone."""

    @override
    async def sweep(self) -> int:
        return 0


@dataclass
class ForgetfulCreate(SimStore):
    """A session is created without the record of its idempotency key."""

    @override
    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        del remember
        return await super().create(new, None)


# --- what a process has of the store


class PublishFirst(Around):
    """Readers are told before the commit."""

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        for entry in batch:
            for event in entry.events:
                live = LiveEvent(entry.session_id, event.seq, event.payload, event.type)
                self.cluster.redis.carry(live, self.cluster.world)
        done = cast("Callable[..., object]", self.port.append_batch)(batch)  # type: ignore[attr-defined]
        return cast("list[Appended]", await done)  # type: ignore[misc]


class TwiceDelivered(Around):
    """A row of the inbox comes twice."""

    async def inbox(self, session_id: str, after: int) -> list[InboxRow]:
        rows = await cast("SessionStore", self.port).inbox(session_id, after)
        return [row for row in rows for _ in range(2)]


class NoWake(Around):
    """A message does not make its session due."""

    @asynccontextmanager
    async def locked(self, tenant: str, session_id: str) -> AsyncIterator[object]:
        row = self.cluster.store.rows[session_id]
        due = row.wake_us
        async with cast("SessionStore", self.port).locked(tenant, session_id) as locked:
            due = row.wake_us
            yield locked
        row.wake_us = due


class NotBehind(Around):
    """A question lapses though its answer is in the inbox."""

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        blind = [replace(entry, unless_behind=False) for entry in batch]
        done = cast("Callable[..., object]", self.port.append_batch)(blind)  # type: ignore[attr-defined]
        return cast("list[Appended]", await done)  # type: ignore[misc]


class NeverBack(JournalWriter):
    """An answer that was lost means: not written; the entry's owner starts over."""

    @override
    async def _read_back(self, batch: Sequence[object]) -> None:
        for waiting in batch:
            done = waiting.done  # type: ignore[attr-defined]
            if not done.done():
                done.set_result(Appended(Fate.FENCED))


class TakenAsWritten(JournalWriter):
    """An answer that was lost means: written."""

    @override
    async def _read_back(self, batch: Sequence[object]) -> None:
        for waiting in batch:
            done = waiting.done  # type: ignore[attr-defined]
            if not done.done():
                done.set_result(Appended(Fate.WRITTEN, waiting.entry.inbox_seen))  # type: ignore[attr-defined]


class ActThenAppend(JournalWriter):
    """The owner goes on before its events are durable."""

    @override
    async def append(self, entry: Append) -> Appended:
        if entry.release is not None:
            return await super().append(entry)
        self.left = asyncio.get_running_loop().create_task(super().append(entry))
        return Appended(Fate.WRITTEN, entry.inbox_seen)


# --- the lease, tools, readers


class EternalLease(Lease):
    """The lease is not looked at before something is sent."""

    @override
    def fresh(self) -> bool:
        return True

    @override
    def confirm(self, asked_s: float) -> None:
        self.term = 1
        self._confirmed.set()


class RetriedOnce(Around):
    """A call without an answer is taken for one that was not sent, and so is made again."""

    async def run(self, request: ToolRequest) -> ToolReply:
        try:
            return await cast("ToolPort", self.port).run(request)
        except ToolFailure as failure:
            raise ToolFailure(replace(failure.fault, sent=False)) from failure


class NoSecondLook(Around):
    """The lease is not looked at again when the first byte is about to go out."""

    async def run(self, request: ToolRequest) -> ToolReply:
        return await cast("ToolPort", self.port).run(replace(request, may_send=lambda: True))


class AttachLate(Around):
    """A reader's live events are gathered only some time after the subscription was confirmed."""

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        async with cast("Hub", self.port).subscribe(session_id) as live:
            mine = self.cluster.redis.readers[session_id][-1]
            mine.attached = False
            self.cluster.redis.later(0.3, setattr, mine, "attached", True)  # noqa: FBT003
            yield live


class NoComparison(Follower):
    """The heads of followed sessions are never compared with the journal."""

    @override
    async def _compare_heads(self) -> None:
        return


# --- the machine


def _leave_open(draft: Draft, reason: StopReason) -> None:
    """Close nothing."""
    del draft, reason


def _at_once(_state: State, open_call: OpenCall) -> int:
    """Ask at once what became of a call, though the tool may still be at it."""
    return 0 if open_call.doubt is None else open_call.doubt.since_us


PLANTS: Mapping[str, Build] = {
    build.name: build
    for build in (
        *BESIDE,
        replace(SOUND, name="no-epoch-check", store=NoEpochCheck),
        replace(SOUND, name="no-head-check", store=NoHeadCheck),
        replace(SOUND, name="blind-release", store=BlindRelease),
        replace(SOUND, name="greedy-claim", store=GreedyClaim),
        replace(SOUND, name="timer-erased", store=TimerErased),
        replace(SOUND, name="ruthless-sweep", store=RuthlessSweep),
        replace(SOUND, name="no-sweep", store=NoSweep),
        replace(SOUND, name="forgetful-create", store=ForgetfulCreate),
        replace(SOUND, name="publish-first", connection=PublishFirst),
        replace(SOUND, name="twice-delivered", connection=TwiceDelivered),
        replace(SOUND, name="no-wake", connection=NoWake),
        replace(SOUND, name="lapses-unread", connection=NotBehind),
        replace(SOUND, name="no-read-back", writer=NeverBack),
        replace(SOUND, name="taken-as-written", writer=TakenAsWritten),
        replace(SOUND, name="act-then-append", writer=ActThenAppend),
        replace(SOUND, name="eternal-lease", lease=EternalLease),
        replace(SOUND, name="no-second-look", tools=NoSecondLook),
        replace(SOUND, name="asked-too-early", patched=patched(plan, "_doubt_over_us", _at_once)),
        replace(SOUND, name="retried-once", tools=RetriedOnce),
        replace(SOUND, name="attach-late", hub=AttachLate),
        replace(SOUND, name="no-comparison", follower=NoComparison),
        replace(SOUND, name="open-calls", patched=patched(ending, "close_calls", _leave_open)),
    )
}
