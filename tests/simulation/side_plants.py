"""Builds with a known fault beside the sessions: in schedules, webhooks, audiences and keys."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from typing_extensions import override

from app.runtime.ports.journal import Append, Appended, Fate, SealedEvent
from app.runtime.ports.sessions import Remember, Remembered
from app.runtime.sessions.audience import Audience
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.side.firing import Firing, Scheduling
from app.runtime.side.schedule_records import (
    LockedSchedule,
    Outcome,
    Run,
    ScheduleRow,
    Seen,
    Target,
)
from app.runtime.side.schedules import Schedules
from app.runtime.side.webhook_records import Claimed, DeliveryStatus, Settled, WebhookStore
from tests.simulation.build import SOUND, SimStore
from tests.simulation.planting import Around, patched
from tests.simulation.redis import HubPort

# --- schedules

_make = Firing.make


async def _keyless(
    self: Firing, row: ScheduleRow, target: Target, due_us: int, _attempt: Attempt | None
) -> tuple[Answer, str]:
    """Fire without the idempotency key of the firing."""
    return await _make(self, row, target, due_us, None)


async def _noted_first(self: Scheduling, seen: Seen) -> None:
    """Note a firing as made before it is."""
    row, due_us = seen.row, seen.row.next_us or 0
    run = Run(due_us=due_us, at_us=seen.now_us, outcome=Outcome.FIRED)
    if await self.store.advance(row, run, row.timing.after(due_us)):
        await self._made(row, due_us, seen.now_us)


async def _not_forestalled(_self: Schedules, _locked: LockedSchedule) -> bool:
    """Leave the key of a firing that is due to the workers, whoever changes its schedule."""
    return False


# --- webhooks


@dataclass
class NoDeliveries(SimStore):
    """An append writes events and nothing else."""

    @override
    def tell_hooks(self, session_id: str, events: Sequence[SealedEvent]) -> None:
        del session_id, events

    def tell_late(self, session_id: str, events: Sequence[SealedEvent]) -> None:
        """Write the deliveries of events that were committed before."""
        super().tell_hooks(session_id, events)


class DeliveriesLater(Around):
    """The deliveries of events are written in a transaction after that of the events."""

    async def append_batch(self, batch: Sequence[Append]) -> list[Appended]:
        append = cast("Callable[..., Awaitable[list[Appended]]]", self.port.append_batch)  # type: ignore[attr-defined]
        fates = await append(batch)
        for entry, fate in zip(batch, fates, strict=True):
            if fate.fate is Fate.WRITTEN:
                await self._write(entry)
        return fates

    async def _write(self, entry: Append) -> None:
        store = cast("NoDeliveries", self.cluster.store)

        async def write() -> None:
            store.tell_late(entry.session_id, entry.events)

        await self.cluster.postgres.statement("webhooks.put", write)


class DeliveredFirst(Around):
    """A delivery is marked as delivered when it is taken to be sent."""

    async def claim(self, webhook_id: str, hold_s: float) -> Claimed | None:
        store = cast("WebhookStore", self.port)
        claimed = await store.claim(webhook_id, hold_s)
        if claimed is not None:
            await store.settle(claimed.delivery, Settled(DeliveryStatus.DELIVERED, 200, None))
        return claimed


class ClaimedForGood(Around):
    """A delivery that was taken to be sent is not due again if its process dies."""

    async def claim(self, webhook_id: str, hold_s: float) -> Claimed | None:
        del hold_s
        return await cast("WebhookStore", self.port).claim(webhook_id, 1e6)


# --- readers and keys


async def _looks_away(_self: Audience, _tenant: str, _session_id: str) -> None:
    """Cancel nothing when the last reader has left."""


async def _own_only(self: HubPort, session_id: str) -> int | None:
    """Count the readers of this process alone."""
    return int(any(one.process is self._process for one in self._redis.readers[session_id]))


class NoMark(Around):
    """A key that a route keeps is not marked before the work."""

    async def begin_remembering(self, _record: Remember) -> Remembered | None:
        return None


BESIDE = (
    replace(SOUND, name="fires-without-key", patched=patched(Firing, "make", _keyless)),
    replace(SOUND, name="noted-then-fired", patched=patched(Scheduling, "_step", _noted_first)),
    replace(
        SOUND, name="not-forestalled", patched=patched(Schedules, "_forestall", _not_forestalled)
    ),
    replace(SOUND, name="deliveries-later", store=NoDeliveries, connection=DeliveriesLater),
    replace(SOUND, name="delivered-first", webhooks=DeliveredFirst),
    replace(SOUND, name="claimed-for-good", webhooks=ClaimedForGood),
    replace(SOUND, name="looks-away", patched=patched(Audience, "_look_after", _looks_away)),
    replace(SOUND, name="own-readers-only", patched=patched(HubPort, "readers", _own_only)),
    replace(SOUND, name="no-mark", connection=NoMark),
)
