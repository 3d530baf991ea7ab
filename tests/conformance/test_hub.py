"""The hub and hot-state ports, on the fakes and on Valkey; two hubs are two processes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app.live.hot import RedisHotStates
from app.live.link import Link
from app.live.reader import MOST_EVENTS
from app.runtime.ports.journal import Snapshot
from app.runtime.ports.live import HotStates, Hub, LiveEvent
from tests.clocks import RealClock
from tests.fakes.live import MemoryHot, MemoryHub
from tests.live.running import running_hub
from tests.servers import REDIS_URL
from tests.waiting import until

Hubs = tuple[Hub, Hub]


def server_url(request: pytest.FixtureRequest) -> str:
    """The run's Valkey, started only for the tests that ask for it."""
    url: str = os.environ.get(REDIS_URL) or request.getfixturevalue("valkey_server").url
    return url


@pytest.fixture(params=["fake", "redis"])
async def hubs(request: pytest.FixtureRequest) -> AsyncIterator[Hubs]:
    if request.param == "fake":
        hub = MemoryHub()
        yield hub, hub
        return
    url = server_url(request)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running_hub(url))
        two = await stack.enter_async_context(running_hub(url))
        yield one, two


@pytest.fixture(params=["fake", "redis"])
async def hot(request: pytest.FixtureRequest) -> AsyncIterator[HotStates]:
    if request.param == "fake":
        yield MemoryHot()
        return
    async with Link(server_url(request), clock=RealClock()) as link:
        yield RedisHotStates(link, prefix=f"test-{os.urandom(8).hex()}")


async def next_of(events: AsyncIterator[LiveEvent | None]) -> LiveEvent:
    """The next event, past marks that something may have been missed."""
    async with asyncio.timeout(20):
        async for event in events:
            if event is not None:
                return event
    raise AssertionError


def made(n: int, session_id: str = "ses_1") -> LiveEvent:
    return LiveEvent(session_id, n, b"\0sealed %d" % n, "step.finished")


@pytest.mark.parametrize("same_process", [True, False])
async def test_every_event_reaches_a_reader_once(hubs: Hubs, *, same_process: bool) -> None:
    writer, reader = hubs[0], hubs[0 if same_process else 1]
    async with reader.subscribe("ses_1") as events:
        await until(lambda: writer.followed("ses_1"))
        delta = LiveEvent("ses_1", None, b"delta")
        sent = [made(1), delta, made(2), delta, LiveEvent("ses_1", 3, b"", "")]
        await writer.publish([sent[0], made(9, "ses_2"), *sent[1:3]])
        await writer.publish(sent[3:])
        assert [await next_of(events) for _ in sent] == sent


async def test_only_followed_sessions_are_followed(hubs: Hubs) -> None:
    one, two = hubs
    assert not one.followed("ses_1")
    await one.publish([made(1)])
    async with two.subscribe("ses_1"), two.subscribe("ses_1"):
        assert two.followed("ses_1")
        await until(lambda: one.followed("ses_1"))
        assert not one.followed("ses_2")
    assert not two.followed("ses_1")


async def test_readers_of_one_session_all_get_everything(hubs: Hubs) -> None:
    one, two = hubs
    async with (
        one.subscribe("ses_1") as a,
        one.subscribe("ses_1") as b,
        two.subscribe("ses_1") as c,
    ):
        await until(lambda: one.followed("ses_1") and two.followed("ses_1"))
        await one.publish([made(1)])
        assert [await next_of(r) for r in (a, b, c)] == [made(1)] * 3
        async with two.subscribe("ses_1") as late:
            await one.publish([made(2)])
            assert await next_of(late) == made(2)
        await one.publish([made(3)])
        assert [await next_of(c), await next_of(c)] == [made(2), made(3)]


@pytest.mark.case("C082")
async def test_a_slow_reader_is_told_that_it_missed_something(hubs: Hubs) -> None:
    hub = hubs[0]
    async with hub.subscribe("ses_1") as slow:
        for n in range(MOST_EVENTS + 1):
            await hub.publish([made(n)])
        await hub.publish([made(9999)])
        async with asyncio.timeout(20):
            assert await anext(slow) is None
        assert await next_of(slow) == made(9999)


async def test_nudges_reach_every_process_once(hubs: Hubs) -> None:
    one, two = hubs
    heard: list[tuple[int, str]] = []
    one.on_nudge(lambda i: heard.append((1, i)))
    two.on_nudge(lambda i: heard.append((2, i)))
    await one.nudge("ses_1")
    await until(lambda: len(heard) == 2)
    await two.nudge("ses_2")
    await until(lambda: len(heard) == 4)
    assert sorted(heard) == [(1, "ses_1"), (1, "ses_2"), (2, "ses_1"), (2, "ses_2")]


@pytest.mark.parametrize("kind", ["fake", "redis"])
async def test_that_a_session_rests_is_heard_where_somebody_listens(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """In one's own process at once, in every other that asked before it ran."""
    heard: list[str] = []
    near: Hub
    far: Hub
    async with AsyncExitStack() as stack:
        if kind == "fake":
            near = far = MemoryHub()
            near.on_rest(heard.append)
            near.on_rest(heard.append)
        else:
            url = server_url(request)
            near = await stack.enter_async_context(running_hub(url, on_rest=heard.append))
            far = await stack.enter_async_context(running_hub(url, on_rest=heard.append))
            await stack.enter_async_context(running_hub(url))  # it did not ask
        near.rested("ses_1")
        assert heard[0] == "ses_1"
        await until(lambda: len(heard) == 2)
        far.rested("ses_2")
        await until(lambda: len(heard) == 4)
    assert sorted(heard) == ["ses_1", "ses_1", "ses_2", "ses_2"]


@pytest.mark.req("STATE-2")
async def test_a_hot_state_comes_back(hot: HotStates) -> None:
    assert await hot.get("ses_1") is None
    await hot.put("ses_1", Snapshot(5, 1, b"\0sealed"))
    await hot.put("ses_1", Snapshot(7, 2, b""))
    assert await hot.get("ses_1") == Snapshot(7, 2, b"")
    assert await hot.get("ses_2") is None
