"""What is said in a delivery, what an attempt came to, and how a lane goes on."""

import json
from collections.abc import Collection, Mapping

import pytest
from typing_extensions import override

from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.errors import Erased, KeyMissing, Tampered
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.side.deliveries import RETRY_S, Composer, Deliveries, judged
from app.runtime.side.webhook_records import (
    DeliveryStatus,
    Posted,
    Webhook,
    WebhookDelivery,
    WebhookSpec,
)
from app.runtime.side.webhooks import Courier
from tests.fakes.api_ports import FakeTokens, PlainCipher, PlainKeyring
from tests.fakes.api_store import FakeStore
from tests.fakes.webhooks import FakePoster, MemoryWebhooks, readable
from tests.making import new_session

CLOCK = SystemClock()
PAY = ToolSpec("pay", 1, ToolKind.HTTP, "", {}, sensitive=("card",))


class Keys(PlainKeyring):
    """A keyring that can fail as a real one does."""

    fails: Exception | None = None

    @override
    def unwrap(self, session_id: str, key: WrappedKey) -> PlainCipher:
        if self.fails is not None:
            raise self.fails
        return PlainCipher()


class World:
    """One endpoint, one session, and a lane."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.hooks = MemoryWebhooks(CLOCK.now_us)
        self.poster = FakePoster()
        self.keys = Keys()
        self.session = new_session()
        courier = Courier(poster=self.poster, sign=readable, keyring=self.keys, clock=CLOCK)
        catalog = Catalog(store=self.store, builtins=[PAY], tokens=FakeTokens(), clock=CLOCK)
        composer = Composer(
            sessions=self.store,
            journal=self.store,
            keyring=self.keys,
            catalog=catalog,
            mask=masked,
        )
        self.lane = Deliveries(
            store=self.hooks, composer=composer, courier=courier, clock=CLOCK, hold_s=60
        )

    async def with_events(self, *data: Mapping[str, object]) -> None:
        await self.store.create(self.session, None)
        now_us = CLOCK.now_us()
        spec = WebhookSpec("https://a.test/", ("turn.ended",), None, enabled=True)
        sealed = PlainKeyring().seal_record(b"one")
        await self.hooks.add(Webhook("whk_1", "default", spec, 0, None, None, 1, 1), sealed)
        self.store.events[self.session.id] = []
        for seq, found in enumerate(data, 1):
            plain = json.dumps({"data": found}).encode()
            payload = PlainCipher().seal(plain, b"event:%d" % seq)
            event = SealedEvent(seq, 1, "turn.ended", None, 1, 3, 1_000_000, payload, b"")
            self.store.events[self.session.id].append(event)
            await self.hooks.put(
                WebhookDelivery(
                    *(f"dlv_{seq}", "whk_1", "default", self.session.id, seq, 1, "turn.ended"),
                    *(DeliveryStatus.PENDING, 0, now_us, None, None, now_us, None),
                )
            )

    def said(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.poster.sent[-1].body)
        return found

    def kept(self) -> WebhookDelivery:
        return self.hooks.kept["dlv_1"]


def masked(data: Mapping[str, object], hidden: Collection[str]) -> dict[str, object]:
    text = json.dumps(data).replace("hunter2", "***")
    for one in hidden:
        text = text.replace(one, "***")
    found: dict[str, object] = json.loads(text)
    return found


@pytest.mark.req("API-15")
async def test_a_lane_sends_what_is_due_one_after_the_other() -> None:
    world = World()
    await world.with_events({"text": "the word is hunter2"}, {}, {})
    assert await world.lane.due(9) == ["whk_1/0", "whk_1/1", "whk_1/2"]
    await world.lane.run("whk_1/0")
    assert [s.headers["webhook-id"] for s in world.poster.sent] == ["dlv_1", "dlv_2", "dlv_3"]
    assert json.loads(world.poster.sent[0].body) == {
        "type": "turn.ended",
        "timestamp": "1970-01-01T00:00:01.000000Z",
        "data": {
            "session_id": world.session.id,
            "seq": 1,
            "turn": 1,
            "step": 3,
            "v": 1,
            "event_type": "turn.ended",
            "event": {"text": "the word is ***"},
        },
    }
    assert await world.lane.due(9) == []
    await world.lane.run("whk_1/0")  # again, with nothing due
    assert len(world.poster.sent) == 3


async def test_a_failure_ends_the_lane_and_is_tried_again_later() -> None:
    world = World()
    await world.with_events({}, {})
    world.poster.answer = Posted(500)
    await world.lane.run("whk_1/0")
    assert len(world.poster.sent) == 1
    kept = world.kept()
    assert (kept.status, kept.attempts, kept.last_status) == ("pending", 1, 500)
    assert kept.next_at_us is not None
    assert 4 <= (kept.next_at_us - CLOCK.now_us()) / 1e6 <= 6


@pytest.mark.req("STATE-5", "API-15")
async def test_sensitive_parameters_are_hidden_wherever_they_turn_up() -> None:
    world = World()
    call = {"name": "pay", "arguments": {"card": "4111-1111", "sum": "eleven"}}
    short = {"name": "pay", "arguments": {"card": 12}}
    other = {"name": "gone", "arguments": {"a": "unknown tool"}}
    await world.with_events({"calls": [call, short, other], "note": "4111-1111; unknown tool; 12"})
    await world.lane.run("whk_1/0")
    data = world.said()["data"]
    assert isinstance(data, dict)
    assert data["event"] == {
        "calls": [
            {"name": "pay", "arguments": {"card": "***", "sum": "eleven"}},
            {"name": "pay", "arguments": {"card": "***"}},
            {"name": "gone", "arguments": {"a": "***"}},
        ],
        "note": "***; ***; 12",
    }


@pytest.mark.req("API-15")
async def test_of_an_erased_session_only_that_it_happened() -> None:
    world = World()
    await world.with_events({"text": "gone"})
    world.keys.fails = Erased("gone")
    await world.lane.run("whk_1/0")
    data = world.said()["data"]
    assert isinstance(data, dict)
    assert (data["session_id"], data["event"]) == (world.session.id, None)
    assert world.kept().status == "delivered"


async def test_what_cannot_be_said_is_not_sent() -> None:
    world = World()
    await world.with_events({})
    world.keys.fails = KeyMissing("no key")
    await world.lane.run("whk_1/0")
    assert (world.kept().status, world.poster.sent) == ("pending", [])
    world.keys.fails = Tampered("changed")
    await world.hooks.redeliver("whk_1", "dlv_1")
    await world.lane.run("whk_1/0")
    assert (world.kept().status, world.poster.sent) == ("dead", [])
    world.keys.fails = None
    world.store.events[world.session.id] = []
    await world.hooks.redeliver("whk_1", "dlv_1")
    await world.lane.run("whk_1/0")
    assert world.kept().last_error == "The session is gone."


@pytest.mark.req("API-15")
def test_the_schedule_of_retries() -> None:
    for attempts, wait_s in enumerate(RETRY_S, 1):
        for jitter in (0.0, 0.5, 0.999):
            found = judged(Posted(500), attempts, jitter)
            assert found.status is DeliveryStatus.PENDING
            assert found.retry_s is not None
            assert 0.9 * wait_s <= found.retry_s <= 1.1 * wait_s
    last = judged(Posted(None, "away"), len(RETRY_S) + 1, 0.5)
    assert (last.status, last.error, last.retry_s) == ("dead", "away", None)
    assert sum(RETRY_S) > 3 * 24 * 3600


@pytest.mark.parametrize(
    ("posted", "status", "retry_s"),
    [
        (Posted(200), "delivered", None),
        (Posted(299), "delivered", None),
        (Posted(302, "moved"), "pending", 5.0),
        (Posted(400), "pending", 5.0),
        (Posted(429, None, 1.0), "pending", 5.0),
        (Posted(503, None, 600.0), "pending", 600.0),
        (Posted(503, None, 1e9), "pending", 24 * 3600.0),
        (Posted(410), "dead", None),
    ],
)
def test_what_an_answer_means(posted: Posted, status: str, retry_s: float | None) -> None:
    found = judged(posted, 1, 0.5)
    assert (found.status, found.retry_s) == (status, retry_s)
    assert found.disable is (posted.status == 410)
