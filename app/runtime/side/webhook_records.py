"""What a webhook and a delivery are: their values, and the ports that keep and send them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class DeliveryStatus(StrEnum):
    """What became of a delivery; `dead` after the last attempt."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    """What a user says of an endpoint."""

    url: str
    events: tuple[str, ...]
    description: str | None
    enabled: bool


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint. `failures` counts attempts that failed one after the other."""

    id: str
    tenant: str
    spec: WebhookSpec
    failures: int
    disabled_reason: str | None
    old_secret_until_us: int | None
    created_at_us: int
    updated_at_us: int


@dataclass(frozen=True, slots=True)
class Secrets:
    """The sealed secrets which sign now, the newest first."""

    sealed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event on its way to one endpoint; `last_error` never holds anything of an answer."""

    id: str
    webhook_id: str
    tenant: str
    session_id: str
    seq: int
    turn: int
    type: str
    status: DeliveryStatus
    attempts: int
    next_at_us: int | None
    last_status: int | None
    last_error: str | None
    created_at_us: int
    delivered_at_us: int | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is this process's to send, and where to."""

    delivery: WebhookDelivery
    url: str
    secrets: Secrets


@dataclass(frozen=True, slots=True)
class Settled:
    """What an attempt came to: `retry_s` while there is another one."""

    status: DeliveryStatus
    http_status: int | None
    error: str | None
    retry_s: float | None = None
    disable: bool = False


@dataclass(frozen=True, slots=True)
class Posted:
    """What an endpoint answered: its status, or why there is none. Its body is not read."""

    status: int | None
    error: str | None = None
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """Return whether the endpoint took it."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - success


class Poster(Protocol):
    """Sends to endpoints of users, past the egress guard."""

    async def refusal(self, url: str) -> str | None:
        """Return why nothing may be sent to an address; None when it may, or is not known yet."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send once and return what came of it; follows no redirect, and never raises."""


class WebhookStore(Protocol):
    """Endpoints and deliveries. Times of retries are by the store's clock."""

    async def add(self, webhook: Webhook, secret: bytes) -> None:
        """Store a new endpoint with its sealed secret."""

    async def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        """Return an endpoint."""

    async def page(self, tenant: str, after: str | None, limit: int) -> list[Webhook]:
        """Return endpoints, newest first, after the given id."""

    async def change(self, tenant: str, webhook_id: str, spec: WebhookSpec) -> Webhook | None:
        """Replace what the user says of an endpoint; its failures are forgotten."""

    async def delete(self, tenant: str, webhook_id: str) -> bool:
        """Remove an endpoint with its deliveries."""

    async def rotate(
        self, tenant: str, webhook_id: str, secret: bytes, old_s: float
    ) -> Webhook | None:
        """Replace the secret; the one before signs for a while longer."""

    async def secrets(self, tenant: str, webhook_id: str) -> Secrets | None:
        """Return the secrets that sign now."""

    async def deliveries(
        self, webhook_id: str, status: DeliveryStatus | None, after: str | None, limit: int
    ) -> list[WebhookDelivery]:
        """Return deliveries of an endpoint, newest first, after the given id."""

    async def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery | None:
        """Make a delivery due now, with all its attempts if it had ended."""

    async def due(self, lanes: int, limit: int) -> list[tuple[str, int]]:
        """Return enabled endpoints with something due, each up to `lanes` times, numbered.

        An endpoint whose last attempt failed comes once only.
        """

    async def claim(self, webhook_id: str, hold_s: float) -> Claimed | None:
        """Take the delivery that is due first; it is not due for others within `hold_s`."""

    async def settle(self, delivery: WebhookDelivery, settled: Settled) -> None:
        """Write what an attempt came to, unless a later one was begun meanwhile."""

    async def tidy(self, keep_s: float, limit: int) -> int:
        """Remove ended deliveries that are older, and those of no endpoint; return how many."""


class Signer(Protocol):
    """Signs as Standard Webhooks says."""

    def __call__(self, secret: str, message_id: str, at_us: int, body: bytes) -> str:
        """Return one signature."""
