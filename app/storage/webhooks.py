"""Webhooks and their deliveries. A delivery is written by the journal's append, with its event."""

from typing import Final

from asyncpg import Record

from app.runtime.side.webhook_records import (
    Claimed,
    DeliveryStatus,
    Secrets,
    Settled,
    Webhook,
    WebhookDelivery,
    WebhookSpec,
)
from app.runtime.times import maybe_us, to_time, to_us
from app.storage.engine import Engine

_ADD: Final = """
insert into webhooks
    (id, tenant, url, events, description, enabled, secret, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $8)
"""

_GET: Final = "select * from webhooks where tenant = $1 and id = $2"

_PAGE: Final = """
select * from webhooks where tenant = $1 and ($2::text is null or id < $2)
order by id desc limit $3
"""

_CHANGE: Final = """
update webhooks set url = $3, events = $4, description = $5, enabled = $6, failures = 0,
    disabled_reason = null, updated_at = now()
where tenant = $1 and id = $2 returning *
"""

_DELETE: Final = "delete from webhooks where tenant = $1 and id = $2"
_DELETE_DELIVERIES: Final = "delete from deliveries where webhook_id = $1"

_ROTATE: Final = """
update webhooks set old_secret = secret, old_until = now() + make_interval(secs => $4),
    secret = $3, updated_at = now()
where tenant = $1 and id = $2 returning *
"""

_DELIVERIES: Final = """
select * from deliveries
where webhook_id = $1 and ($2::text is null or status = $2) and ($3::text is null or id < $3)
order by id desc limit $4
"""

# One that is pending keeps its count: an attempt may be under way, and its answer is told from
# that of the next one by the number.
_REDELIVER: Final = """
update deliveries set attempts = case when status = 'pending' then attempts else 0 end,
    status = 'pending', next_at = now(), delivered_at = null
where webhook_id = $1 and id = $2 returning *
"""

# Goes from one endpoint with something pending to the next, by the index alone: nothing pending
# is one look, and an endpoint with a million rows costs no more than one with five.
DUE: Final = """
with recursive waiting as (
    (select webhook_id from deliveries where status = 'pending' order by webhook_id limit 1)
    union all
    select (
        select d.webhook_id from deliveries d
        where d.status = 'pending' and d.webhook_id > waiting.webhook_id
        order by d.webhook_id limit 1
    ) from waiting where waiting.webhook_id is not null
)
select w.id, one.lane from waiting join webhooks w on w.id = waiting.webhook_id and w.enabled
cross join lateral (
    select next_at, row_number() over (order by next_at) - 1 as lane from (
        select d.next_at from deliveries d
        where d.webhook_id = w.id and d.status = 'pending' and d.next_at <= now()
        order by d.next_at limit case when w.failures > 0 then 1 else $1::int end
    ) as first
) as one
order by one.next_at limit $2
"""

_CLAIM: Final = """
update deliveries d set attempts = d.attempts + 1, next_at = now() + make_interval(secs => $2)
from webhooks w
where w.id = d.webhook_id and w.enabled and d.id = (
    select id from deliveries
    where webhook_id = $1 and status = 'pending' and next_at <= now()
    order by next_at limit 1 for update skip locked
)
returning d.*, w.url, w.secret, case when w.old_until > now() then w.old_secret end as old_secret
"""

_SECRETS: Final = """
select secret, case when old_until > now() then old_secret end as old_secret
from webhooks where tenant = $1 and id = $2
"""

_SETTLE: Final = """
with settled as (
    update deliveries set status = $3, last_status = $4, last_error = $5,
        next_at = now() + make_interval(secs => $6::float8),
        delivered_at = case when $3 = 'delivered' then now() end
    where id = $1 and attempts = $2 and status = 'pending'
    returning webhook_id
)
update webhooks w set
    failures = case when $3 = 'delivered' then 0 else w.failures + 1 end,
    enabled = w.enabled and not $7::bool,
    disabled_reason = case when $7 then 'gone' else w.disabled_reason end
from settled
where w.id = settled.webhook_id and (w.failures > 0 or $3 <> 'delivered')
"""

_TIDY: Final = """
delete from deliveries where id in (
    (select id from deliveries
        where status <> 'pending' and created_at < now() - make_interval(secs => $1)
        order by created_at limit $2)
    union all
    (select d.id from deliveries d where d.status = 'pending'
        and not exists (select from webhooks w where w.id = d.webhook_id) limit $2)
)
"""


class PostgresWebhooks:
    """Webhooks and deliveries, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Write and read through this pool."""
        self._engine = engine

    async def add(self, webhook: Webhook, secret: bytes) -> None:
        """Store a new endpoint with its sealed secret."""
        spec = webhook.spec
        created = to_time(webhook.created_at_us)
        said = (spec.url, list(spec.events), spec.description, spec.enabled)
        await self._engine.run(_ADD, webhook.id, webhook.tenant, *said, secret, created)

    async def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        """Return an endpoint."""
        return _maybe(await self._engine.row(_GET, tenant, webhook_id))

    async def page(self, tenant: str, after: str | None, limit: int) -> list[Webhook]:
        """Return endpoints, newest first, after the given id."""
        return [_webhook(row) for row in await self._engine.rows(_PAGE, tenant, after, limit)]

    async def change(self, tenant: str, webhook_id: str, spec: WebhookSpec) -> Webhook | None:
        """Replace what the user says of an endpoint; its failures are forgotten."""
        said = (spec.url, list(spec.events), spec.description, spec.enabled)
        return _maybe(await self._engine.row(_CHANGE, tenant, webhook_id, *said))

    async def delete(self, tenant: str, webhook_id: str) -> bool:
        """Remove an endpoint with its deliveries."""
        async with self._engine.transaction() as connection:
            gone = await connection.execute(_DELETE, tenant, webhook_id) == "DELETE 1"
            if gone:
                await connection.execute(_DELETE_DELIVERIES, webhook_id)
        return gone

    async def rotate(
        self, tenant: str, webhook_id: str, secret: bytes, old_s: float
    ) -> Webhook | None:
        """Replace the secret; the one before signs for a while longer."""
        return _maybe(await self._engine.row(_ROTATE, tenant, webhook_id, secret, old_s))

    async def secrets(self, tenant: str, webhook_id: str) -> Secrets | None:
        """Return the secrets that sign now."""
        row = await self._engine.row(_SECRETS, tenant, webhook_id)
        return _secrets(row) if row else None

    async def deliveries(
        self, webhook_id: str, status: DeliveryStatus | None, after: str | None, limit: int
    ) -> list[WebhookDelivery]:
        """Return deliveries of an endpoint, newest first, after the given id."""
        rows = await self._engine.rows(_DELIVERIES, webhook_id, status, after, limit)
        return [_delivery(row) for row in rows]

    async def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery | None:
        """Make a delivery due now, with all its attempts if it had ended."""
        row = await self._engine.row(_REDELIVER, webhook_id, delivery_id)
        return _delivery(row) if row else None

    async def due(self, lanes: int, limit: int) -> list[tuple[str, int]]:
        """Return enabled endpoints with something due, each up to `lanes` times, numbered."""
        rows = await self._engine.rows(DUE, lanes, limit)
        return [(row["id"], row["lane"]) for row in rows]

    async def claim(self, webhook_id: str, hold_s: float) -> Claimed | None:
        """Take the delivery that is due first; it is not due for others within `hold_s`."""
        row = await self._engine.row(_CLAIM, webhook_id, hold_s)
        return Claimed(_delivery(row), row["url"], _secrets(row)) if row else None

    async def settle(self, delivery: WebhookDelivery, settled: Settled) -> None:
        """Write what an attempt came to, unless a later one was begun meanwhile."""
        await self._engine.run(
            _SETTLE,
            delivery.id,
            delivery.attempts,
            settled.status,
            settled.http_status,
            settled.error,
            settled.retry_s,
            settled.disable,
        )

    async def tidy(self, keep_s: float, limit: int) -> int:
        """Remove ended deliveries that are older, and those of no endpoint; return how many."""
        return await self._engine.run(_TIDY, keep_s, limit)


def _maybe(row: Record | None) -> Webhook | None:
    return _webhook(row) if row else None


def _webhook(row: Record) -> Webhook:
    return Webhook(
        id=row["id"],
        tenant=row["tenant"],
        spec=WebhookSpec(row["url"], tuple(row["events"]), row["description"], row["enabled"]),
        failures=row["failures"],
        disabled_reason=row["disabled_reason"],
        old_secret_until_us=maybe_us(row["old_until"]),
        created_at_us=to_us(row["created_at"]),
        updated_at_us=to_us(row["updated_at"]),
    )


def _secrets(row: Record) -> Secrets:
    return Secrets(tuple(s for s in (row["secret"], row["old_secret"]) if s is not None))


def _delivery(row: Record) -> WebhookDelivery:
    return WebhookDelivery(
        id=row["id"],
        webhook_id=row["webhook_id"],
        tenant=row["tenant"],
        session_id=row["session_id"],
        seq=row["seq"],
        turn=row["turn"],
        type=row["type"],
        status=DeliveryStatus(row["status"]),
        attempts=row["attempts"],
        next_at_us=maybe_us(row["next_at"]),
        last_status=row["last_status"],
        last_error=row["last_error"],
        created_at_us=to_us(row["created_at"]),
        delivered_at_us=maybe_us(row["delivered_at"]),
    )
