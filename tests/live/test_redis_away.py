"""Redis delayed, cut off, gone and back: nothing waits for it, nothing gets another's answer."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.live.hot import RedisHotStates
from app.live.link import Link
from app.live.subscription import Subscription
from app.runtime.errors import LiveUnavailable, StoreUnavailable
from app.runtime.ports.journal import Snapshot
from app.runtime.ports.live import LiveEvent
from tests.clocks import RealClock
from tests.live.running import Proxy, proxied, running_hub
from tests.waiting import until


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with proxied(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def link(proxy: Proxy) -> AsyncIterator[Link]:
    async with Link(proxy.url, clock=RealClock(), connections=5) as link:
        yield link


@pytest.mark.case("C127", "C128")
async def test_a_cancelled_command_leaves_its_answer_to_nobody(proxy: Proxy, link: Link) -> None:
    hot = RedisHotStates(link)
    keys = [f"ses_{n}" for n in range(20)]
    for key in keys:
        await hot.put(key, Snapshot(1, 1, key.encode()))
    proxy.delay_s = 0.02
    chance = random.Random(7)
    answers: list[tuple[str, Snapshot | None]] = []

    async def read(key: str) -> None:
        answers.append((key, await hot.get(key)))

    async def read_and_cancel(key: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(chance.uniform(0.0, 0.015)):
                await link.run([("GET", key), ("ECHO", "a"), ("GET", f"{key}x")])

    for _ in range(20):
        async with asyncio.TaskGroup() as group:
            for key in chance.sample(keys, 4):
                group.create_task(read(key))
            for key in chance.choices(keys, k=25):
                group.create_task(read_and_cancel(f"surefoot:hot:{key}"))
    got = [key for key, snapshot in answers if snapshot is not None]
    assert all(s.payload == key.encode() for key, s in answers if s is not None)
    assert len(got) > len(answers) / 2, "the test is about answers, not about timeouts"
    proxy.delay_s = 0.0
    link.mend()
    async with asyncio.TaskGroup() as group:
        after = [group.create_task(link.run([("ECHO", key)])) for key in keys]
    assert [a.result() for a in after] == [[key.encode()] for key in keys], "the pool is whole"


@pytest.mark.req("STATE-2")
async def test_a_dead_redis_costs_nothing_per_call(proxy: Proxy, link: Link) -> None:
    hot = RedisHotStates(link)
    await proxy.stop()
    assert await hot.get("ses_1") is None
    assert link.broken
    took: list[float] = []
    for _ in range(1000):
        started = time.monotonic()
        await hot.put("ses_1", Snapshot(1, 1, b"x"))
        took.append(time.monotonic() - started)
    # Half of them at the least: a try to connect may come in between, and so may other programs.
    assert sorted(took)[500] < 0.001
    assert await hot.get("ses_1") is None


async def test_a_silent_redis_holds_a_call_for_a_second_at_most(proxy: Proxy, link: Link) -> None:
    proxy.delay_s = 30.0
    started = time.monotonic()
    with pytest.raises(LiveUnavailable):
        await link.run([("ECHO", "x")])
    assert 0.5 < time.monotonic() - started < 10.0


async def test_calls_go_through_again_when_redis_is_back(proxy: Proxy, link: Link) -> None:
    await proxy.stop()
    with pytest.raises(LiveUnavailable):
        await link.run([("ECHO", "x")])
    await proxy.start()

    async def answers() -> bool:
        try:
            return await link.run([("ECHO", "x")]) == [b"x"]
        except LiveUnavailable:
            return False

    await until(answers)


async def marked(events: AsyncIterator[LiveEvent | None]) -> None:
    async with asyncio.timeout(10):
        assert await anext(events) is None


@pytest.mark.case("C131")
async def test_readers_are_told_after_a_lost_connection(proxy: Proxy, redis_url: str) -> None:
    async with (
        running_hub(proxy.url) as reader,
        running_hub(redis_url) as writer,
        reader.subscribe("ses_1") as events,
    ):
        async with Redis.from_url(redis_url) as admin:
            await admin.client_kill_filter(_type="pubsub", skipme=False)
        await marked(events)
        proxy.cut()
        await marked(events)
        await until(lambda: writer.connected and writer.followed("ses_1"))
        await writer.publish([LiveEvent("ses_1", 5, b"x", "t")])
        async with asyncio.timeout(20):
            found = await anext(events)
            while found is None:
                found = await anext(events)
        assert found.seq == 5


async def test_without_redis_readers_of_the_same_process_still_get_everything(proxy: Proxy) -> None:
    await proxy.stop()
    async with running_hub(proxy.url, wait=False) as hub, hub.subscribe("ses_1") as events:
        started = time.monotonic()
        for n in range(100):
            await hub.publish([LiveEvent("ses_1", n, b"x")])
        assert time.monotonic() - started < 5.0, "fewer than a hundred timeouts"
        async with asyncio.timeout(20):
            found = [await anext(events) for _ in range(100)]
        assert [e.seq for e in found if e] == list(range(100))
        await proxy.start()
        await marked(events)


async def test_nudges_take_the_other_way_without_redis(proxy: Proxy) -> None:
    sent: list[str] = []

    async def fallback(session_id: str) -> None:
        sent.append(session_id)
        if session_id == "ses_2":
            raise StoreUnavailable

    await proxy.stop()
    async with running_hub(proxy.url, fallback, wait=False) as hub:
        heard: list[str] = []
        hub.on_nudge(heard.append)
        await hub.nudge("ses_1")
        await hub.nudge("ses_2")
        assert sent == heard == ["ses_1", "ses_2"]
        hub.nudged("ses_3")
        assert heard[-1] == "ses_3"


async def test_one_subscription_connection_serves_every_reader(redis_url: str) -> None:
    async with running_hub(redis_url) as hub, Redis.from_url(redis_url) as admin:
        before = len(await admin.client_list(_type="pubsub"))
        async with hub.subscribe("a"), hub.subscribe("b"), hub.subscribe("a"), hub.subscribe("c"):
            assert len(await admin.client_list(_type="pubsub")) == before == 1
            assert await admin.pubsub_numsub("surefoot:live:a") == [(b"surefoot:live:a", 1)]
        await until(lambda: _none_left(admin))


async def _none_left(admin: Redis) -> bool:
    return await admin.pubsub_numsub("surefoot:live:a") == [(b"surefoot:live:a", 0)]


class Quiet:
    """A listener that listens to nothing."""

    def heard(self, channel: str, data: bytes) -> None:
        raise AssertionError(channel, data)

    def reconnected(self) -> None:
        pass


async def test_subscribing_ends_when_redis_knows_of_it(
    proxy: Proxy, link: Link, redis_url: str
) -> None:
    subscription = Subscription(link, Quiet(), ["always"])
    async with Redis.from_url(redis_url) as admin, asyncio.TaskGroup() as group:
        running = group.create_task(subscription.run())
        await until(lambda: subscription.connected)
        proxy.delay_in_s = 0.1
        await subscription.add("x")
        assert await admin.pubsub_numsub("x") == [(b"x", 1)]
        proxy.delay_in_s = 30.0
        async with asyncio.timeout(20):
            await subscription.add("y")  # never confirmed: followed without
        running.cancel()


async def test_leaving_and_joining_again_is_confirmed_anew(redis_url: str) -> None:
    async with running_hub(redis_url) as reader, running_hub(redis_url) as writer:
        for n in range(50):
            async with reader.subscribe("ses_1") as events:
                await until(lambda: writer.followed("ses_1"))
                await writer.publish([LiveEvent("ses_1", n, b"x")])
                async with asyncio.timeout(20):
                    assert (await anext(events)) == LiveEvent("ses_1", n, b"x")


async def test_nothing_is_published_while_nobody_elsewhere_follows(proxy: Proxy) -> None:
    async with running_hub(proxy.url) as hub, hub.subscribe("ses_1"):
        before = proxy.bytes_in
        for n in range(100):
            await hub.publish([LiveEvent("ses_1", n, b"x" * 100), LiveEvent("ses_2", n, b"x")])
        assert proxy.bytes_in - before < 1000


@pytest.mark.case("C129")
async def test_an_evicting_redis_is_named(redis_url: str) -> None:
    async with Link(redis_url, clock=RealClock()) as link:
        hot = RedisHotStates(link)
        assert await hot.warning() is None
        await link.run([("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")])
        try:
            warning = await hot.warning()
            assert warning is not None
            assert "allkeys-lru" in warning
        finally:
            await link.run([("CONFIG", "SET", "maxmemory-policy", "noeviction")])


async def test_who_comes_late_learns_what_is_followed_and_forgets_it_again(redis_url: str) -> None:
    fast = RealClock(rate=20)
    async with running_hub(redis_url, clock=fast) as reader:
        async with reader.subscribe("ses_1"), running_hub(redis_url, clock=fast) as late:
            await until(lambda: late.followed("ses_1"))
            for _ in range(3):  # said again and again, so it stays
                await fast.sleep(8)
                assert late.followed("ses_1")
        async with running_hub(redis_url, clock=fast) as later:
            await fast.sleep(8)
            assert not later.followed("ses_1")


async def test_a_connection_that_went_silent_is_replaced(proxy: Proxy) -> None:
    async with (
        running_hub(proxy.url, clock=RealClock(rate=20)) as hub,
        hub.subscribe("ses_1") as events,
    ):
        proxy.delay_s = 30.0  # nothing arrives any more, and nothing is closed
        await until(lambda: not hub.connected)
        proxy.delay_s = 0.0
        await marked(events)
