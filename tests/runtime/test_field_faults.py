"""Faults that befell others, as they were told: each a small story on the whole runtime."""

import asyncio
import gc
from collections.abc import Callable

import pytest
from typing_extensions import override

from app.core.events import Event, MessageReceived, Policy
from app.core.messages import UserMessage
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.refusals import Conflict
from app.runtime.sessions.idempotency import Answer
from app.storage.codec import JsonCodec
from tests.runtime.scripts import shop, sums
from tests.runtime.world import LEASE_S, World


@pytest.mark.req("STATE-10")
@pytest.mark.case("C073")
async def test_no_run_is_collected_as_garbage(world: World) -> None:
    """Fifty at once, while the collector runs all the time; one of them raises at once."""

    def script(request: ModelRequest) -> ModelReply:
        if "bad" in str(request.messages):
            raise ZeroDivisionError
        return sums(request)

    world.model.script = script
    node = world.node()

    async def collect() -> None:
        while True:
            gc.collect()
            await asyncio.sleep(0.5)

    async with world.running(node) as group:
        collecting = group.create_task(collect())
        bad = await world.create("bad")
        good = [await world.create(f"good {n}") for n in range(49)]
        for session in good:
            await world.until(session, "completed")
        await world.until(bad, "failed")
        collecting.cancel()
    assert "ZeroDivisionError" in str(node.observer.said("session.crashed")[0])
    assert world.types(bad)[-1] == "turn.ended"


def said(request: ModelRequest) -> str:
    """Return all that the user said, as the model is told it."""
    return "\n".join(m.text for m in request.messages if isinstance(m, UserMessage))


@pytest.mark.req("API-7")
@pytest.mark.case("C084")
@pytest.mark.parametrize("policy", list(Policy))
async def test_five_messages_at_once_to_a_session_in_a_slow_tool(
    world: World, policy: Policy
) -> None:
    """One outcome for all; requests of a session never overlap, and the order is kept."""
    world.model.script, world.tools.takes_s = shop, 3
    answer, under_way = world.model.answer, [0]

    async def alone(request: ModelRequest, on_delta: Callable[[str], None] | None) -> ModelReply:
        assert under_way == [0], "two requests of one session at once"
        under_way[0] += 1
        try:
            return await answer(request, on_delta)
        finally:
            under_way[0] -= 1

    world.model.answer = alone  # type: ignore[method-assign]
    node = world.node()
    async with world.running(node) as group:
        session = await world.create("first")
        await world.moment(session, "tool.intended")

        async def tell(n: int) -> Answer | Conflict:
            try:
                return await world.tell(session, f"more {n}", policy)
            except Conflict as refused:
                return refused

        told = [group.create_task(tell(n)) for n in range(5)]
        outcomes = {type(await one) for one in told}
        await world.until(session, "completed")
    assert node.observer.said("session.crashed") == []
    assert outcomes == {Conflict if policy is Policy.REJECT else Answer}
    heard = [line for line in said(world.model.requests[-1]).split("\n") if line]
    taken = [e.body.text for e in world.journal(session) if isinstance(e.body, MessageReceived)]
    assert len(taken) == (0 if policy is Policy.REJECT else 5)
    assert heard == ["first", *taken]


@pytest.mark.req("STATE-4")
@pytest.mark.case("C133")
@pytest.mark.parametrize("skew_s", [-600, 600])
async def test_a_worker_with_a_wrong_clock_takes_no_live_run(world: World, skew_s: float) -> None:
    """Leases go by Postgres's clock; after a hand-over the journal's time does not go back."""
    world.model.script, world.model.takes_s = sums, 2 * LEASE_S
    owner, wrong = world.node("owner"), world.node("wrong")
    wrong.clock.stop(skew_s)
    async with world.running(owner) as group:
        session = await world.create()
        await world.moment(session, "model.requested")
        wrong.task = group.create_task(wrong.worker.run())
        await world.moment(session, "model.answered", 2)
        assert world.store.rows[session].epoch == 1
        assert wrong.observer.events == {}
        world.model.takes_s = 0.2
        owner.worker.drain()
        await world.until(session, "completed")
        wrong.worker.drain()
    events = world.journal(session)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert sorted(e.at_us for e in events) == [e.at_us for e in events]
    assert world.store.rows[session].epoch == 2


class BrokenCodec(JsonCodec):
    """Cannot write the result of a tool, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    @override
    def encode(self, event: Event) -> bytes:
        if event.body.TYPE == "tool.finished" and self.left > 0:
            self.left -= 1
            raise TypeError("cannot be written")
        return super().encode(event)


@pytest.mark.req("STATE-10")
@pytest.mark.case("C081")
@pytest.mark.parametrize(("times", "status"), [(1, "completed"), (1000, "failed")])
async def test_an_event_that_cannot_be_written_leaves_no_run_behind(
    world: World, times: int, status: str
) -> None:
    world.model.script, world.codec = shop, BrokenCodec(times)
    node = world.node()
    async with world.running(node):
        session = await world.create()
        await world.until(session, "completed", "failed")
        shown = await world.shown(session)
    assert shown["status"] == status
    assert world.types(session).count("turn.ended") == 1
    assert "cannot be written" in str(node.observer.said("session.crashed")[0])
