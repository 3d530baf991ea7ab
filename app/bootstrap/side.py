"""Work beside the sessions: webhooks, and the queue of side jobs with every kind there is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.runtime.catalog import Catalog
from app.runtime.ports.keys import Keyring
from app.runtime.ports.process import Clock
from app.runtime.side.deliveries import Composer, Deliveries, DeliveriesTidied, ping
from app.runtime.side.jobs import SideJob
from app.runtime.side.webhooks import Courier, Webhooks
from app.settings import Settings
from app.storage.engine import Engine
from app.storage.jobs import JobQueue
from app.storage.journal import PostgresJournal
from app.storage.sessions import PostgresSessions
from app.storage.webhooks import PostgresWebhooks
from app.telemetry.masking import MASK, Masker, mask_fields
from app.tools.outgoing import OutgoingPosts, sign

LONGEST_PICK_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Masking:
    """Masks what goes to webhooks by the rules of log lines and spans."""

    masker: Masker

    def __call__(self, data: Mapping[str, object], hidden: Collection[str]) -> dict[str, object]:
        """Return the data without secrets, and without the texts to be hidden, at any depth."""
        return {key: self._value(item, hidden) for key, item in mask_fields(data).items()}

    def _value(self, value: object, hidden: Collection[str]) -> object:
        if isinstance(value, str):
            for text in hidden:
                value = value.replace(text, MASK)
            return self.masker.text(value)
        if isinstance(value, Mapping):
            return self({str(key): item for key, item in value.items()}, hidden)
        if isinstance(value, list):
            return [self._value(item, hidden) for item in value]
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What webhooks and side jobs are made of."""

    settings: Settings
    engine: Engine
    clock: Clock
    keyring: Keyring
    catalog: Catalog
    posts: OutgoingPosts
    masking: Masking
    listen_dsn: str
    log: Callable[..., None]

    def webhooks(self) -> Webhooks:
        """Return the use cases of endpoints."""
        return Webhooks(store=PostgresWebhooks(self.engine), courier=self._courier(), ping=ping)

    def queue(self, others: Sequence[SideJob] = ()) -> JobQueue:
        """Return the queue of side jobs of this process, with those of other parts of it."""
        return JobQueue(
            engine=self.engine,
            dsn=self.listen_dsn,
            kinds=(*self._kinds(), *others),
            clock=self.clock,
            log=self.log,
            drain_s=self.settings.drain_s,
            pick_up_s=min(LONGEST_PICK_UP_S, 2 * self.settings.lease_s),
        )

    def _kinds(self) -> tuple[SideJob, ...]:
        store = PostgresWebhooks(self.engine)
        composer = Composer(
            sessions=PostgresSessions(self.engine),
            journal=PostgresJournal(self.engine),
            keyring=self.keyring,
            catalog=self.catalog,
            mask=self.masking,
        )
        deliveries = Deliveries(
            store=store,
            composer=composer,
            courier=self._courier(),
            clock=self.clock,
            # Reading the event and writing the outcome take their time, too.
            hold_s=self.settings.webhook_timeout_s + self.settings.lease_s,
        )
        return (deliveries, DeliveriesTidied(store=store, clock=self.clock))

    def _courier(self) -> Courier:
        return Courier(poster=self.posts, sign=sign, keyring=self.keyring, clock=self.clock)
