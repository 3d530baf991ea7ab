"""Webhooks on the wire: what clients send, what they receive, and how it is written."""

from typing import Annotated, Literal

from pydantic import Field

from app.api.shapes.bodies import Body
from app.api.shapes.common import Shape, Time
from app.runtime.side.webhook_records import DeliveryStatus, Webhook, WebhookDelivery, WebhookSpec
from app.runtime.times import maybe_rfc3339, rfc3339

EventName = Literal[
    "turn.ended",
    "input.requested",
    "approval.requested",
    "security.flagged",
    "escalation.raised",
]


class WebhookIn(Body):
    """An endpoint to tell of events."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    events: Annotated[list[EventName], Field(min_length=1, max_length=32)]
    description: Annotated[str, Field(max_length=1024)] | None = None
    enabled: bool = True

    def spec(self) -> WebhookSpec:
        """Return it as the use case takes it."""
        events = tuple(dict.fromkeys(self.events))
        return WebhookSpec(self.url, events, self.description, self.enabled)


class WebhookOut(Shape):
    """An endpoint."""

    id: str
    object: Literal["webhook"]
    url: str
    events: list[str]
    description: str | None
    enabled: bool
    disabled_reason: Annotated[
        str | None, Field(description="`gone` when the endpoint answered with HTTP 410.")
    ]
    failures: Annotated[int, Field(description="Attempts that failed since the last good one.")]
    old_secret_until: Time | None
    created_at: Time
    updated_at: Time


class WebhookSecretOut(WebhookOut):
    """An endpoint with its secret, which is shown this once."""

    secret: str


class WebhookList(Shape):
    """A page of endpoints, newest first."""

    data: list[WebhookOut]
    next: str | None


class DeliveryOut(Shape):
    """One event on its way to an endpoint; the id is the `webhook-id` that the endpoint sees."""

    id: str
    object: Literal["delivery"]
    webhook_id: str
    session_id: str
    seq: int
    turn: int
    type: str
    status: DeliveryStatus
    attempts: int
    next_at: Time | None
    last_status: int | None
    last_error: str | None
    created_at: Time
    delivered_at: Time | None


class DeliveryList(Shape):
    """A page of deliveries, newest first."""

    data: list[DeliveryOut]
    next: str | None


class TriedOut(Shape):
    """What came of a ping: the endpoint's status, or why there is none."""

    ok: bool
    status: int | None
    error: str | None
    duration_ms: float


def webhook_json(webhook: Webhook, secret: str | None = None) -> dict[str, object]:
    """Return an endpoint as clients see it."""
    spec = webhook.spec
    shown: dict[str, object] = {
        "id": webhook.id,
        "object": "webhook",
        "url": spec.url,
        "events": list(spec.events),
        "description": spec.description,
        "enabled": spec.enabled,
        "disabled_reason": webhook.disabled_reason,
        "failures": webhook.failures,
        "old_secret_until": maybe_rfc3339(webhook.old_secret_until_us),
        "created_at": rfc3339(webhook.created_at_us),
        "updated_at": rfc3339(webhook.updated_at_us),
    }
    return shown if secret is None else {**shown, "secret": secret}


def delivery_json(delivery: WebhookDelivery) -> dict[str, object]:
    """Return a delivery as clients see it."""
    return {
        "id": delivery.id,
        "object": "delivery",
        "webhook_id": delivery.webhook_id,
        "session_id": delivery.session_id,
        "seq": delivery.seq,
        "turn": delivery.turn,
        "type": delivery.type,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "next_at": maybe_rfc3339(delivery.next_at_us),
        "last_status": delivery.last_status,
        "last_error": delivery.last_error,
        "created_at": rfc3339(delivery.created_at_us),
        "delivered_at": maybe_rfc3339(delivery.delivered_at_us),
    }
