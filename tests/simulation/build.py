"""What a process is built from: the sound parts, or a build with one known fault planted."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from app.core.events import SessionForked
from app.runtime.execution.lease import Lease
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate, SealedEvent
from app.runtime.ports.sessions import NewSession, Remember, Remembered
from app.runtime.side.webhook_records import DeliveryStatus, WebhookDelivery
from app.runtime.streams.follow import Follower
from tests.fakes.store import MemoryStore
from tests.fakes.webhooks import MemoryWebhooks

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.loop import Process


def as_it_is(port: object, _cluster: "Cluster", _process: "Process") -> object:
    """Give a process its port as it is."""
    return port


@dataclass
class SimStore(MemoryStore):
    """The fake store, telling the audit of each append, with the deliveries of webhooks."""

    appended: Callable[..., None] = lambda *_a, **_k: None
    hooks: MemoryWebhooks = field(default_factory=lambda: MemoryWebhooks(lambda: 0))

    @override
    def _append(self, entry: Append) -> Appended:
        answer = super()._append(entry)
        if answer.fate is Fate.WRITTEN:
            self.tell_hooks(entry.session_id, entry.events)
            self.appended(entry, self.rows[entry.session_id], released=answer.released)
        return answer

    @override
    async def create(self, new: NewSession, remember: Remember | None) -> Remembered | None:
        known = await super().create(new, remember)
        if known is None:
            self.tell_hooks(new.id, told_at_creation(new.events))
        return known

    def tell_hooks(self, session_id: str, events: Sequence[SealedEvent]) -> None:
        """Write a delivery for each event and endpoint that wants it, as the append does."""
        tenant, now_us = self.rows[session_id].new.tenant, self.clock.now_us()
        for event in events:
            if event.told is None:
                continue
            for hook in self.hooks.hooks.values():
                if hook.spec.enabled and event.told in hook.spec.events:
                    made = WebhookDelivery(
                        id=f"dlv_{hook.id}_{session_id}_{event.seq}",
                        webhook_id=hook.id,
                        tenant=tenant,
                        session_id=session_id,
                        seq=event.seq,
                        turn=event.turn,
                        type=event.told,
                        status=DeliveryStatus.PENDING,
                        attempts=0,
                        next_at_us=now_us,
                        last_status=None,
                        last_error=None,
                        created_at_us=now_us,
                        delivered_at_us=None,
                    )
                    self.hooks.kept[made.id] = made


def told_at_creation(events: Sequence[SealedEvent]) -> Sequence[SealedEvent]:
    """Return the events of a new session that are news: of a fork those after its beginning."""
    forked = [n for n, event in enumerate(events) if event.type == SessionForked.TYPE]
    return events[forked[-1] + 1 :] if forked else ()


Wrap = Callable[[object, "Cluster", "Process"], object]


@dataclass(frozen=True)
class Build:
    """Parts of a process, and of the store, that a planted fault may replace."""

    name: str = "sound"
    store: type[SimStore] = SimStore
    writer: type[JournalWriter] = JournalWriter
    follower: type[Follower] = Follower
    lease: type[Lease] = Lease
    connection: Wrap = as_it_is
    hub: Wrap = as_it_is
    tools: Wrap = as_it_is
    schedules: Wrap = as_it_is
    webhooks: Wrap = as_it_is
    patched: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """What is replaced inside modules for the length of a run."""


SOUND = Build()
