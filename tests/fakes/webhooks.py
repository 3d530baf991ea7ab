"""Webhooks in memory, an endpoint that answers as it is told, and a signature anyone can read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from app.runtime.side.webhook_records import (
    Claimed,
    DeliveryStatus,
    Posted,
    Secrets,
    Settled,
    Webhook,
    WebhookDelivery,
    WebhookSpec,
)


@dataclass
class MemoryWebhooks:
    """A `WebhookStore`; `put` stands for the journal's append."""

    now_us: Callable[[], int]
    hooks: dict[str, Webhook] = field(default_factory=dict)
    sealed: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    kept: dict[str, WebhookDelivery] = field(default_factory=dict)

    async def put(self, delivery: WebhookDelivery) -> None:
        self.kept[delivery.id] = delivery

    async def add(self, webhook: Webhook, secret: bytes) -> None:
        self.hooks[webhook.id], self.sealed[webhook.id] = webhook, (secret,)

    async def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        found = self.hooks.get(webhook_id)
        return found if found is not None and found.tenant == tenant else None

    async def page(self, tenant: str, after: str | None, limit: int) -> list[Webhook]:
        ids = sorted((i for i in self.hooks if after is None or i < after), reverse=True)
        return [self.hooks[i] for i in ids if self.hooks[i].tenant == tenant][:limit]

    async def change(self, tenant: str, webhook_id: str, spec: WebhookSpec) -> Webhook | None:
        if await self.get(tenant, webhook_id) is None:
            return None
        return self._change(webhook_id, spec=spec, failures=0, disabled_reason=None)

    def _change(self, webhook_id: str, **changes: object) -> Webhook:
        changes["updated_at_us"] = self.now_us()
        self.hooks[webhook_id] = replace(self.hooks[webhook_id], **changes)  # type: ignore[arg-type]
        return self.hooks[webhook_id]

    async def delete(self, tenant: str, webhook_id: str) -> bool:
        if await self.get(tenant, webhook_id) is None:
            return False
        del self.hooks[webhook_id]
        self.kept = {i: d for i, d in self.kept.items() if d.webhook_id != webhook_id}
        return True

    async def rotate(
        self, tenant: str, webhook_id: str, secret: bytes, old_s: float
    ) -> Webhook | None:
        if await self.get(tenant, webhook_id) is None:
            return None
        self.sealed[webhook_id] = (secret, self.sealed[webhook_id][0])
        until_us = self.now_us() + int(old_s * 1e6)
        return self._change(webhook_id, old_secret_until_us=until_us)

    async def secrets(self, tenant: str, webhook_id: str) -> Secrets | None:
        found = await self.get(tenant, webhook_id)
        return None if found is None else self._secrets(found)

    def _secrets(self, webhook: Webhook) -> Secrets:
        until_us = webhook.old_secret_until_us or 0
        return Secrets(self.sealed[webhook.id][: 2 if until_us > self.now_us() else 1])

    async def deliveries(
        self, webhook_id: str, status: DeliveryStatus | None, after: str | None, limit: int
    ) -> list[WebhookDelivery]:
        ids = sorted((i for i in self.kept if after is None or i < after), reverse=True)
        found = [self.kept[i] for i in ids if self.kept[i].webhook_id == webhook_id]
        return [d for d in found if status is None or d.status is status][:limit]

    async def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery | None:
        found = self.kept.get(delivery_id)
        if found is None or found.webhook_id != webhook_id:
            return None
        attempts = found.attempts if found.status is DeliveryStatus.PENDING else 0
        self.kept[delivery_id] = replace(
            found,
            status=DeliveryStatus.PENDING,
            attempts=attempts,
            next_at_us=self.now_us(),
            delivered_at_us=None,
        )
        return self.kept[delivery_id]

    def _due(self, webhook_id: str) -> list[WebhookDelivery]:
        if webhook_id not in self.hooks or not self.hooks[webhook_id].spec.enabled:
            return []
        found = [d for d in self.kept.values() if d.webhook_id == webhook_id]
        now_us = self.now_us()
        due = [d for d in found if d.next_at_us is not None and d.next_at_us <= now_us]
        return sorted(due, key=lambda d: d.next_at_us or 0)

    async def due(self, lanes: int, limit: int) -> list[tuple[str, int]]:
        found: list[tuple[int, str, int]] = []
        for hook in self.hooks.values():
            most = 1 if hook.failures else lanes
            for lane, delivery in enumerate(self._due(hook.id)[:most]):
                found.append((delivery.next_at_us or 0, hook.id, lane))
        return [(hook_id, lane) for _, hook_id, lane in sorted(found)[:limit]]

    async def claim(self, webhook_id: str, hold_s: float) -> Claimed | None:
        due = self._due(webhook_id)
        if not due:
            return None
        until_us = self.now_us() + int(hold_s * 1e6)
        taken = replace(due[0], attempts=due[0].attempts + 1, next_at_us=until_us)
        self.kept[taken.id] = taken
        hook = self.hooks[webhook_id]
        return Claimed(taken, hook.spec.url, self._secrets(hook))

    async def settle(self, delivery: WebhookDelivery, settled: Settled) -> None:
        found = self.kept.get(delivery.id)
        if (
            found is None
            or found.status is not DeliveryStatus.PENDING
            or found.attempts != delivery.attempts
        ):
            return
        now_us, wait_s = self.now_us(), settled.retry_s
        good = settled.status is DeliveryStatus.DELIVERED
        self.kept[found.id] = replace(
            found,
            status=settled.status,
            last_status=settled.http_status,
            last_error=settled.error,
            next_at_us=None if wait_s is None else now_us + int(wait_s * 1e6),
            delivered_at_us=now_us if good else None,
        )
        hook = self.hooks[found.webhook_id]
        self._change(hook.id, failures=0 if good else hook.failures + 1)
        if settled.disable:
            off = replace(hook.spec, enabled=False)
            self._change(hook.id, spec=off, disabled_reason="gone")

    async def tidy(self, keep_s: float, limit: int) -> int:
        before_us = self.now_us() - int(keep_s * 1e6)
        gone = [
            d.id
            for d in self.kept.values()
            if (d.status is not DeliveryStatus.PENDING and d.created_at_us < before_us)
            or (d.status is DeliveryStatus.PENDING and d.webhook_id not in self.hooks)
        ][:limit]
        for delivery_id in gone:
            del self.kept[delivery_id]
        return len(gone)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message as it went out."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class FakePoster:
    """A `Poster` which keeps what it was given."""

    answer: Posted = field(default_factory=lambda: Posted(204))
    refuses: str | None = None
    sent: list[Sent] = field(default_factory=list)

    async def refusal(self, url: str) -> str | None:
        del url
        return self.refuses

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        self.sent.append(Sent(url, dict(headers), body))
        return self.answer


def readable(secret: str, message_id: str, at_us: int, body: bytes) -> str:
    """Sign with the secret itself, so that a test sees which one it was."""
    del message_id, at_us, body
    return f"v1,{secret}"
