"""The port of webhooks, on the fake and on Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from app.runtime.clock import SystemClock
from app.runtime.side.webhook_records import (
    DeliveryStatus,
    Settled,
    Webhook,
    WebhookDelivery,
    WebhookSpec,
    WebhookStore,
)
from app.runtime.times import maybe_time, to_time
from app.storage.engine import Engine
from app.storage.migrate import migrate
from app.storage.webhooks import PostgresWebhooks
from tests.fakes.webhooks import MemoryWebhooks
from tests.servers import Databases

NOW_US = SystemClock().now_us
SPEC = WebhookSpec("https://a.test/", ("turn.ended",), "ours", enabled=True)
GOOD = Settled(DeliveryStatus.DELIVERED, 200, None)
AGAIN = Settled(DeliveryStatus.PENDING, 500, "no", 60.0)
DEAD = Settled(DeliveryStatus.DEAD, 500, "no")


@dataclass(frozen=True, slots=True)
class Port:
    """A store, and the hand that writes deliveries as the journal does."""

    store: WebhookStore
    put: Callable[[WebhookDelivery], Awaitable[object]]


@pytest.fixture(params=["fake", "postgres"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    if request.param == "fake":
        made = MemoryWebhooks(NOW_US)
        yield Port(made, made.put)
        return
    databases: Databases = request.getfixturevalue("databases")
    dsn = await databases.create(await databases.template("migrated", migrate))
    async with Engine(dsn) as engine:

        async def put(d: WebhookDelivery) -> None:
            await engine.run(
                "insert into deliveries values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, null,"
                " null, $11, null)",
                *(d.id, d.webhook_id, d.tenant, d.session_id, d.seq, d.turn, d.type, d.status),
                *(d.attempts, maybe_time(d.next_at_us), to_time(d.created_at_us)),
            )

        yield Port(PostgresWebhooks(engine), put)
    await databases.drop(dsn)


def hook(number: int, *, tenant: str = "default", enabled: bool = True) -> Webhook:
    spec = WebhookSpec(SPEC.url, SPEC.events, SPEC.description, enabled)
    now_us = NOW_US()
    return Webhook(f"whk_{number}", tenant, spec, 0, None, None, now_us, now_us)


def delivery(number: int, hook_id: str = "whk_1", *, ago_s: float = 10) -> WebhookDelivery:
    at_us = NOW_US() - int(ago_s * 1e6) + number
    name = f"dlv_{number:03}"
    return WebhookDelivery(
        *(name, hook_id, "default", "ses_1", number, 1, "turn.ended", DeliveryStatus.PENDING),
        *(0, at_us, None, None, at_us, None),
    )


@pytest.mark.req("API-15")
async def test_what_is_stored_is_what_is_read(port: Port) -> None:
    for number in (1, 2, 3):
        await port.store.add(hook(number), b"secret")
    await port.store.add(hook(4, tenant="other"), b"secret")
    found = await port.store.get("default", "whk_1")
    assert found is not None
    assert (found.spec, found.failures, found.disabled_reason) == (SPEC, 0, None)
    assert await port.store.get("default", "whk_4") is None
    assert [h.id for h in await port.store.page("default", None, 2)] == ["whk_3", "whk_2"]
    assert [h.id for h in await port.store.page("default", "whk_2", 2)] == ["whk_1"]
    other = WebhookSpec("https://b.test/", ("turn.ended", "input.requested"), None, enabled=False)
    changed = await port.store.change("default", "whk_1", other)
    assert changed is not None
    assert changed.spec == other
    assert await port.store.change("default", "whk_4", other) is None


async def test_the_secret_before_a_rotation_signs_for_a_while(port: Port) -> None:
    await port.store.add(hook(1), b"one")
    assert await port.store.rotate("default", "whk_9", b"x", 60) is None
    await port.store.rotate("default", "whk_1", b"two", 60)
    found = await port.store.secrets("default", "whk_1")
    assert found is not None
    assert found.sealed == (b"two", b"one")
    await port.store.rotate("default", "whk_1", b"three", 0)
    found = await port.store.secrets("default", "whk_1")
    assert found is not None
    assert found.sealed == (b"three",)
    assert await port.store.secrets("default", "whk_9") is None


async def test_lanes_of_what_is_due(port: Port) -> None:
    """Each endpoint has its share, whatever waits for another; a failing one has one lane."""
    for number in (1, 2, 3):
        await port.store.add(hook(number, enabled=number != 3), b"secret")
    assert await port.store.due(4, 100) == []
    for number in range(20):
        await port.put(delivery(number))
    await port.put(delivery(30, "whk_2"))
    await port.put(delivery(31, "whk_2", ago_s=-60))
    await port.put(delivery(40, "whk_3"))
    await port.put(delivery(50, "whk_gone"))
    lanes = [("whk_1", 0), ("whk_1", 1), ("whk_1", 2), ("whk_1", 3), ("whk_2", 0)]
    assert await port.store.due(4, 100) == lanes
    assert await port.store.due(4, 2) == lanes[:2]
    claimed = await port.store.claim("whk_1", 60)
    assert claimed is not None
    await port.store.settle(claimed.delivery, AGAIN)
    assert await port.store.due(4, 100) == [("whk_1", 0), ("whk_2", 0)]


async def test_a_claim_holds_and_is_counted(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    await port.put(delivery(1))
    await port.put(delivery(2, ago_s=20))
    first = await port.store.claim("whk_1", 60)
    assert first is not None
    assert (first.delivery.id, first.delivery.attempts) == ("dlv_002", 1)
    assert (first.url, first.secrets.sealed) == (SPEC.url, (b"secret",))
    second = await port.store.claim("whk_1", 60)
    assert second is not None
    assert second.delivery.id == "dlv_001"
    assert await port.store.claim("whk_1", 60) is None
    assert await port.store.due(4, 100) == []


async def test_many_claims_at_once_take_different_ones(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    ids: list[str] = []
    for number in range(10):  # the first rounds open the connections
        await port.put(delivery(2 * number))
        await port.put(delivery(2 * number + 1))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(port.store.claim("whk_1", 60)) for _ in range(8)]
        ids += [found.delivery.id for found in (task.result() for task in tasks) if found]
    assert len(ids) == len(set(ids)) <= 20


async def test_an_attempt_that_was_overtaken_writes_nothing(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    await port.put(delivery(1))
    first = await port.store.claim("whk_1", 0)
    second = await port.store.claim("whk_1", 60)
    assert first is not None
    assert second is not None
    await port.store.settle(first.delivery, DEAD)
    assert await port.store.deliveries("whk_1", DeliveryStatus.DEAD, None, 9) == []
    await port.store.settle(second.delivery, GOOD)
    [found] = await port.store.deliveries("whk_1", DeliveryStatus.DELIVERED, None, 9)
    assert (found.attempts, found.last_status, found.next_at_us) == (2, 200, None)
    assert found.delivered_at_us is not None


async def test_failures_are_counted_and_forgotten(port: Port) -> None:
    await port.store.add(hook(1), b"secret")

    async def one(number: int, settled: Settled) -> Webhook:
        await port.put(delivery(number))
        claimed = await port.store.claim("whk_1", 60)
        assert claimed is not None
        await port.store.settle(claimed.delivery, settled)
        found = await port.store.get("default", "whk_1")
        assert found is not None
        return found

    assert (await one(1, AGAIN)).failures == 1
    assert (await one(2, DEAD)).failures == 2
    assert (await one(3, GOOD)).failures == 0
    gone = await one(4, Settled(DeliveryStatus.DEAD, 410, "gone", disable=True))
    assert (gone.spec.enabled, gone.disabled_reason) == (False, "gone")
    back = await port.store.change("default", "whk_1", SPEC)
    assert back is not None
    assert (back.spec.enabled, back.failures, back.disabled_reason) == (True, 0, None)


async def test_redelivery_begins_anew_only_what_had_ended(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    await port.put(delivery(1))
    claimed = await port.store.claim("whk_1", 60)
    assert claimed is not None
    under_way = await port.store.redeliver("whk_1", "dlv_001")
    assert under_way is not None
    assert (under_way.attempts, under_way.status) == (1, "pending")
    await port.store.settle(claimed.delivery, DEAD)
    again = await port.store.redeliver("whk_1", "dlv_001")
    assert again is not None
    assert (again.attempts, again.status) == (0, "pending")
    assert await port.store.redeliver("whk_2", "dlv_001") is None
    assert await port.store.redeliver("whk_1", "dlv_002") is None
    assert await port.store.due(4, 9) == [("whk_1", 0)]


async def test_pages_of_deliveries(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    for number in range(5):
        await port.put(delivery(number))
    first = await port.store.deliveries("whk_1", None, None, 2)
    assert [d.id for d in first] == ["dlv_004", "dlv_003"]
    rest = await port.store.deliveries("whk_1", DeliveryStatus.PENDING, "dlv_003", 9)
    assert [d.id for d in rest] == ["dlv_002", "dlv_001", "dlv_000"]


async def test_an_endpoint_goes_with_its_deliveries_and_old_ones_are_tidied(port: Port) -> None:
    await port.store.add(hook(1), b"secret")
    await port.store.add(hook(2), b"secret")
    await port.put(delivery(1))
    assert not await port.store.delete("other", "whk_1")
    assert await port.store.delete("default", "whk_1")
    assert await port.store.deliveries("whk_1", None, None, 9) == []
    assert not await port.store.delete("default", "whk_1")
    await port.put(delivery(2, "whk_gone"))
    await port.put(delivery(3, "whk_2", ago_s=100))
    await port.put(delivery(4, "whk_2", ago_s=100))
    claimed = await port.store.claim("whk_2", 60)
    assert claimed is not None
    await port.store.settle(claimed.delivery, GOOD)
    assert await port.store.tidy(1000, 9) == 1
    assert await port.store.tidy(50, 9) == 1
    assert await port.store.tidy(50, 9) == 0
    assert [d.id for d in await port.store.deliveries("whk_2", None, None, 9)] == ["dlv_004"]
