"""Deliveries of webhooks: the side job that sends them, and what is said in them.

A job is a lane of one endpoint: it sends what is due there, one after the other, until nothing is
or an attempt fails. So an endpoint that hangs holds its lanes and nobody else's, and a healthy one
is not slowed by the second between two sweeps.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.runtime.catalog import Catalog
from app.runtime.errors import Erased, KeyMissing, Tampered
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.keys import Keyring
from app.runtime.ports.process import Clock
from app.runtime.ports.sessions import SessionStore
from app.runtime.sealing import event_context
from app.runtime.side.jobs import OF_A_KIND, OF_OUR_OWN
from app.runtime.side.webhook_records import (
    Claimed,
    DeliveryStatus,
    Posted,
    Settled,
    WebhookDelivery,
    WebhookStore,
)
from app.runtime.side.webhooks import PING, Courier
from app.runtime.times import rfc3339
from app.runtime.views import to_json

RETRY_S: Final = (
    5,
    5 * 60,
    30 * 60,
    2 * 3600,
    5 * 3600,
    10 * 3600,
    14 * 3600,
    20 * 3600,
    24 * 3600,
)
"""How long after each failed attempt the next one comes, before jitter; then it is dead."""

LANES: Final = 4
"""How many deliveries are on their way to one endpoint at once; one, while it fails."""

KEPT_S: Final = 30 * 24 * 3600
"""For how long deliveries that have ended can be looked at and sent again."""

_JITTER: Final = 0.1
_LONGEST_WAIT_S: Final = 24 * 3600
_GONE: Final = 410
_LANE_S: Final = 20.0
_HIDDEN: Final = "***"
_SHORTEST: Final = 4
_FIRST_TIDY_S: Final = 60.0
_TIDY_EVERY_S: Final = 600.0
_TIDY_ROWS: Final = 1000

Mask = Callable[[Mapping[str, object], Collection[str]], Mapping[str, object]]
"""Masks the data of an event: secrets, and the values given as to be hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """Writes the body of a delivery from the journal, masked; after an erasure without content."""

    sessions: SessionStore
    journal: JournalStore
    keyring: Keyring
    catalog: Catalog
    mask: Mask

    async def body(self, delivery: WebhookDelivery) -> bytes | None:
        """Return the body, the same at every attempt; None when the session is gone.

        Raises:
            KeyMissing: when this process lacks the session's master key.
            Tampered: when the event does not open.

        """
        row = await self.sessions.get(delivery.tenant, delivery.session_id)
        stored = await self.journal.read(delivery.session_id, delivery.seq - 1, 1)
        if row is None or not stored:
            return None
        [sealed] = stored
        event: Mapping[str, object] | None = None
        try:
            cipher = self.keyring.unwrap(row.id, row.key)
            wire = json.loads(cipher.open(sealed.payload, event_context(sealed.seq)))
            event = await self._masked(delivery.tenant, wire["data"])
        except Erased:
            pass  # what remains is that it happened
        data = {
            "session_id": delivery.session_id,
            "seq": delivery.seq,
            "turn": sealed.turn,
            "step": sealed.step,
            "v": sealed.v,
            "event_type": sealed.type,
            "event": event,
        }
        return _message(delivery.type, sealed.at_us, data)

    async def _masked(self, tenant: str, data: Mapping[str, object]) -> Mapping[str, object]:
        """Mask an event; of tool calls also the parameters that are marked as sensitive.

        Of a tool that is not there any more nobody knows which those are: all of them then.
        """
        calls = list(_calls(data))
        if not calls:
            return self.mask(data, ())
        tools = await self.catalog.current(tenant)
        hidden: list[str] = []
        for name, arguments in calls:
            spec = tools.get(name)
            marked = list(arguments) if spec is None else spec.sensitive
            for key in marked:
                if key in arguments:
                    hidden.append(_text(arguments[key]))
                    arguments[key] = _HIDDEN
        return self.mask(data, [text for text in hidden if len(text) >= _SHORTEST])


def _calls(value: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the tool calls anywhere in an event: a name and its arguments, the very objects."""
    if isinstance(value, dict):
        name, arguments = value.get("name"), value.get("arguments")
        if isinstance(name, str) and isinstance(arguments, dict):
            yield name, arguments
        for item in value.values():
            yield from _calls(item)
    elif isinstance(value, list):
        for item in value:
            yield from _calls(item)


def ping(webhook_id: str, at_us: int) -> bytes:
    """Return the body of a ping."""
    return _message(PING, at_us, {"webhook_id": webhook_id})


def _message(kind: str, at_us: int, data: Mapping[str, object]) -> bytes:
    shown = {"type": kind, "timestamp": rfc3339(at_us), "data": data}
    return to_json(shown)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def judged(posted: Posted, attempts: int, jitter: float) -> Settled:
    """Return what an attempt came to; `attempts` counts it, `jitter` is in [0, 1)."""
    if posted.ok:
        return Settled(DeliveryStatus.DELIVERED, posted.status, None)
    if posted.status == _GONE:
        error = "The endpoint is gone (HTTP 410); the webhook was disabled."
        return Settled(DeliveryStatus.DEAD, posted.status, error, disable=True)
    error = posted.error or f"The endpoint answered with HTTP {posted.status}."
    if attempts > len(RETRY_S):
        return Settled(DeliveryStatus.DEAD, posted.status, error)
    wait_s = RETRY_S[attempts - 1] * (1 - _JITTER + 2 * _JITTER * jitter)
    wait_s = max(wait_s, min(posted.retry_after_s or 0, _LONGEST_WAIT_S))
    return Settled(DeliveryStatus.PENDING, posted.status, error, wait_s)


class Deliveries:
    """The side job kind that sends deliveries: an id is an endpoint and a lane."""

    name = "webhooks"
    parallel = OF_A_KIND

    def __init__(
        self,
        *,
        store: WebhookStore,
        composer: Composer,
        courier: Courier,
        clock: Clock,
        hold_s: float,
    ) -> None:
        """Take its parts; `hold_s` is longer than an attempt can take."""
        self._store = store
        self._composer = composer
        self._courier = courier
        self._clock = clock
        self._hold_s = hold_s

    async def due(self, limit: int) -> Sequence[str]:
        """Return the lanes of endpoints with something due."""
        return [f"{hook}/{lane}" for hook, lane in await self._store.due(LANES, limit)]

    async def run(self, job_id: str) -> None:
        """Send what is due to an endpoint, until nothing is, an attempt fails, or time is over.

        An attempt is counted when it begins: one that dies with its process is made again under
        the same id, and still not for ever.
        """
        webhook_id = job_id.partition("/")[0]
        until_s = self._clock.boot_s() + _LANE_S
        while self._clock.boot_s() < until_s:
            claimed = await self._store.claim(webhook_id, self._hold_s)
            if claimed is None:
                return
            settled = await self._attempt(claimed)
            await self._store.settle(claimed.delivery, settled)
            if settled.status is not DeliveryStatus.DELIVERED:
                return

    async def _attempt(self, claimed: Claimed) -> Settled:
        delivery = claimed.delivery
        try:
            body = await self._composer.body(delivery)
            if body is None:
                return Settled(DeliveryStatus.DEAD, None, "The session is gone.")
            posted = await self._courier.send(claimed.url, claimed.secrets, delivery.id, body)
        except KeyMissing:
            posted = Posted(None, "The worker lacks an encryption key.")
        except Tampered:
            return Settled(DeliveryStatus.DEAD, None, "The stored event does not open.")
        return judged(posted, delivery.attempts, self._clock.jitter())


class DeliveriesTidied:
    """The side job kind that removes what ended long ago, in small bites."""

    name = "webhooks_tidied"
    parallel = OF_OUR_OWN

    def __init__(self, *, store: WebhookStore, clock: Clock) -> None:
        """Be due in a minute, then each ten minutes."""
        self._store = store
        self._clock = clock
        self._next_s = clock.boot_s() + _FIRST_TIDY_S

    async def due(self, limit: int) -> Sequence[str]:
        """Return the one job there is, when it is time; asks the store nothing."""
        del limit
        now_s = self._clock.boot_s()
        if now_s < self._next_s:
            return []
        self._next_s = now_s + _TIDY_EVERY_S
        return ["old"]

    async def run(self, job_id: str) -> None:
        """Remove until there is nothing more."""
        del job_id
        while await self._store.tidy(KEPT_S, _TIDY_ROWS):
            pass
