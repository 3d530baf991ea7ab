"""Webhooks: endpoints that are told of events, with Standard Webhooks signatures.

A delivery is a row that the journal's append writes together with its event. Side jobs send it
(`deliveries`); here is how endpoints are registered, changed and tried out.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.ids import mint
from app.runtime.ports.keys import Keyring
from app.runtime.ports.process import Clock
from app.runtime.refusals import FieldFault, Invalid, NotFound
from app.runtime.side.webhook_records import (
    DeliveryStatus,
    Posted,
    Poster,
    Secrets,
    Signer,
    Webhook,
    WebhookDelivery,
    WebhookSpec,
    WebhookStore,
)

PING: Final = "webhook.ping"
OLD_SECRET_S: Final = 24 * 3600
"""For how long the secret before a rotation signs, too."""

_SECRET_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a ping."""

    posted: Posted
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Courier:
    """Signs a body with every secret of an endpoint and sends it."""

    poster: Poster
    sign: Signer
    keyring: Keyring
    clock: Clock

    async def send(self, url: str, secrets: Secrets, message_id: str, body: bytes) -> Posted:
        """Send a message; its id is the same at every attempt.

        Raises:
            KeyMissing: when this process lacks the key that sealed a secret.
            Tampered: when a secret does not open.

        """
        now_us = self.clock.now_us()
        opened = [self.keyring.open_record(sealed).decode() for sealed in secrets.sealed]
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(now_us // 1_000_000),
            "webhook-signature": " ".join(
                self.sign(secret, message_id, now_us, body) for secret in opened
            ),
        }
        return await self.poster.post(url, headers, body)


class Webhooks:
    """The use cases of endpoints."""

    def __init__(
        self,
        *,
        store: WebhookStore,
        courier: Courier,
        ping: Callable[[str, int], bytes],
    ) -> None:
        """Take its parts; `ping` makes the body of a ping."""
        self.store = store
        self._courier = courier
        self._ping = ping

    async def register(self, tenant: str, spec: WebhookSpec) -> tuple[Webhook, str]:
        """Store an endpoint and return it with its secret, which is never shown again.

        Raises:
            Invalid: when nothing may be sent there.

        """
        await self._check(spec.url)
        clock = self._courier.clock
        now_us = clock.now_us()
        made = Webhook(
            id=mint("whk", at_us=now_us, entropy=clock.entropy(10)),
            tenant=tenant,
            spec=spec,
            failures=0,
            disabled_reason=None,
            old_secret_until_us=None,
            created_at_us=now_us,
            updated_at_us=now_us,
        )
        secret, sealed = self._secret()
        await self.store.add(made, sealed)
        return made, secret

    async def get(self, tenant: str, webhook_id: str) -> Webhook:
        """Return an endpoint.

        Raises:
            NotFound: when there is none of this tenant.

        """
        return _found(await self.store.get(tenant, webhook_id), webhook_id)

    async def change(self, tenant: str, webhook_id: str, spec: WebhookSpec) -> Webhook:
        """Replace what the user says of an endpoint."""
        await self.get(tenant, webhook_id)
        await self._check(spec.url)
        return _found(await self.store.change(tenant, webhook_id, spec), webhook_id)

    async def delete(self, tenant: str, webhook_id: str) -> None:
        """Remove an endpoint with its deliveries."""
        if not await self.store.delete(tenant, webhook_id):
            raise NotFound("webhook", webhook_id)

    async def rotate(self, tenant: str, webhook_id: str) -> tuple[Webhook, str]:
        """Give an endpoint a new secret; the old one signs beside it for a day."""
        secret, sealed = self._secret()
        changed = await self.store.rotate(tenant, webhook_id, sealed, OLD_SECRET_S)
        return _found(changed, webhook_id), secret

    async def test(self, tenant: str, webhook_id: str) -> Tried:
        """Send a signed ping now, once."""
        webhook = await self.get(tenant, webhook_id)
        secrets = await self.store.secrets(tenant, webhook_id)
        clock = self._courier.clock
        message_id = mint("dlv", at_us=clock.now_us(), entropy=clock.entropy(10))
        body = self._ping(webhook_id, clock.now_us())
        began_s = clock.boot_s()
        posted = await self._courier.send(
            webhook.spec.url, secrets or Secrets(()), message_id, body
        )
        return Tried(posted, clock.boot_s() - began_s)

    async def deliveries(
        self,
        tenant: str,
        webhook_id: str,
        *,
        status: DeliveryStatus | None,
        after: str | None,
        limit: int,
    ) -> Sequence[WebhookDelivery]:
        """Return deliveries of an endpoint, newest first."""
        await self.get(tenant, webhook_id)
        return await self.store.deliveries(webhook_id, status, after, limit)

    async def redeliver(self, tenant: str, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Make a delivery due now.

        Raises:
            NotFound: when there is no such endpoint, or no such delivery of it.

        """
        await self.get(tenant, webhook_id)
        found = await self.store.redeliver(webhook_id, delivery_id)
        if found is None:
            raise NotFound("delivery", delivery_id)
        return found

    async def _check(self, url: str) -> None:
        reason = await self._courier.poster.refusal(url)
        if reason is not None:
            raise Invalid("The webhook cannot be sent there.", FieldFault("/url", reason))

    def _secret(self) -> tuple[str, bytes]:
        chance = self._courier.clock.entropy(_SECRET_BYTES)
        secret = f"whsec_{base64.b64encode(chance).decode()}"
        return secret, self._courier.keyring.seal_record(secret.encode())


def _found(webhook: Webhook | None, webhook_id: str) -> Webhook:
    if webhook is None:
        raise NotFound("webhook", webhook_id)
    return webhook
