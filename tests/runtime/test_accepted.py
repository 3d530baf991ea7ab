"""What was accepted takes effect or leaves an event, however odd the moment it came at."""

import asyncio
import dataclasses
import json

import pytest

from app.core.faults import Fault, FaultKind
from app.runtime.errors import ModelFailure
from app.runtime.execution.poison import MOST_CLAIMS
from app.runtime.execution.worker import WorkerOptions
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.refusals import Conflict
from tests.fakes.interposed import Death
from tests.fakes.models import says
from tests.runtime.scripts import weather
from tests.runtime.world import LEASE_S, TENANT, World, dies
from tests.waiting import until


@pytest.mark.req("API-8")
async def test_a_cancel_that_came_to_nothing_is_not_in_the_way_of_the_next(world: World) -> None:
    """Both find the journal at the same head: the first was read when there was nothing to end."""
    world.model.takes_s = 30
    async with world.running():
        session = await world.create()
        await world.moment(session, "model.requested")
        await world.sessions.cancel(TENANT, session)
        head = world.store.rows[session].head
        # Under the lock a cancel sees a session that is about to rest, so it is put in after it.
        world.store.rows[session].wake_us = world.clock.now_us()
        nothing = await world.sessions.cancel(TENANT, session)
        assert json.loads(nothing.body)["status"] == "cancelled"
        assert world.store.rows[session].head == head
        said = world.store.rows[session].inbox_head
        async with asyncio.TaskGroup() as group:
            group.create_task(world.say(session, "more"))
            await until(lambda: world.store.rows[session].inbox_head > said)
            second = await world.sessions.cancel(TENANT, session)
        assert json.loads(second.body)["status"] == "cancelled"
        assert json.loads(second.body)["turn"] == 2


@pytest.mark.req("API-8")
async def test_a_cancel_said_twice_ends_one_turn(world: World) -> None:
    """The second is said before the first was read: it must not end what is queued behind."""
    world.model.takes_s = 30
    async with world.running():
        session = await world.create()
        await world.moment(session, "model.requested")
        await world.say(session, "the next")
        await world.moment(session, "message.received")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(world.sessions.cancel(TENANT, session))
        await world.until(session, "completed")
    assert world.state(session).turn == 2


@pytest.mark.req("API-12")
@pytest.mark.parametrize("verb", ["message", "resume", "verify"])
async def test_what_comes_behind_a_close_is_told_so(world: World, verb: str) -> None:
    world.model.script = weather
    async with world.running():
        session = await world.create("Weather")
        await world.until(session, "completed")
    async with world.api():
        asked = asyncio.timeout(1)
        with pytest.raises(TimeoutError):
            async with asked:
                await world.sessions.close(TENANT, session)
        sessions = world.sessions
        asking = {
            "message": lambda: world.tell(session, "more"),
            "resume": lambda: sessions.resume(TENANT, session, None, None),
            "verify": lambda: world.answers.verify(TENANT, session, "c", 1, None, happened=True),
        }
        with pytest.raises(Conflict) as refused:
            await asking[verb]()
        assert refused.value.slug == "session-ended"
        assert len(world.store.rows[session].inbox) == 1


@pytest.mark.req("STATE-10")
@pytest.mark.case("C081")
async def test_a_message_to_a_session_that_dies_is_for_the_next_turn(world: World) -> None:
    """It is accepted just before the session is given up; that end is not the message's."""
    broken = True

    def script(request: ModelRequest) -> ModelReply | ModelFailure:
        if broken:
            raise RuntimeError("an adapter's bug")
        return says(f"{len(request.messages)} messages")

    world.model.script = script
    session = await world.create("one")
    world.store.rows[session].claims = MOST_CLAIMS
    await world.say(session, "two")
    broken = False
    async with world.running():
        await world.moment(session, "turn.ended", 2)
        await world.until(session, "completed")
    types = world.types(session)
    assert types.index("turn.ended") < types.index("message.received")
    assert world.state(session).turn == 2


@pytest.mark.req("STATE-10")
async def test_a_message_that_cannot_be_taken_leaves_the_end_of_a_turn(world: World) -> None:
    """The session has ended, and its journal does not fold any more; closing it works even so."""
    async with world.running():
        session = await world.create("one")
        await world.until(session, "completed")
        events = world.store.events[session]
        events[0] = dataclasses.replace(events[0], payload=b"x" * 40)
        await world.say(session, "two")
        await world.moment(session, "turn.ended", 2)
        assert world.store.rows[session].facts.status == "failed"
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(world.sessions.close(TENANT, session))
        assert json.loads(closing.result().body)["status"] == "closed"
        assert events[-1].type == "session.closed"


@pytest.mark.req("STATE-4", "TOOL-10")
@pytest.mark.case("C075")
@pytest.mark.parametrize("skew_s", [-86_400, -20, 20, 86_400])
async def test_a_timer_rings_by_the_clock_of_postgres(world: World, skew_s: float) -> None:
    """Whatever the worker's own clock says: neither too early nor claimed again and again."""
    world.model.script = weather
    async with world.api() as group:
        session = await world.create("Weather")
        death = Death(on="run", after=True, when=lambda: bool(world.tools.done["create_reminder"]))
        await dies(world.node("doomed", between=death))
        await asyncio.sleep(LEASE_S + 1)
        heir = world.node("heir")
        heir.clock.stop(skew_s)
        working = group.create_task(heir.worker.run())
        await world.moment(session, "session.interrupted")
        began = world.clock.boot_s()
        await world.say(session, "are you there?")  # a claim by the inbox must not ring it
        await world.until(session, "waiting", within_s=60)
        took_s = world.clock.boot_s() - began
        heir.worker.drain()
        await working
    timeout_s = world.state(session).calls[0].call.timeout_s
    assert LEASE_S + timeout_s - 1 < took_s < LEASE_S + timeout_s + 3
    assert world.store.rows[session].epoch <= 4


@pytest.mark.req("OPS-4")
async def test_a_retry_that_only_waits_does_not_hold_up_a_drain(world: World) -> None:
    """The endpoint said to come back later: nothing is in flight."""

    def busy(_request: ModelRequest) -> ModelFailure:
        fault = Fault.of(FaultKind.RATE_LIMITED, "busy", retry_after_us=20_000_000)
        return ModelFailure(fault)

    world.model.script = busy
    node = world.node()
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.failed")
        await asyncio.sleep(1)
        began = world.clock.boot_s()
        node.worker.drain()
        assert node.task is not None
        await node.task
        assert world.clock.boot_s() - began < 1
    assert world.store.rows[session].owner is None
    assert len(world.model.asked) == 1


@pytest.mark.req("OPS-4", "STATE-4")
async def test_a_session_that_a_drain_gives_up_goes_on_at_once(world: World) -> None:
    """The other worker is told; it does not find it at its next look."""
    world.model.takes_s = 60
    owner = world.node("owner", options=WorkerOptions(drain_s=0.55))
    heir = world.node("heir")
    async with world.running(owner) as group:
        session = await world.create()
        await world.moment(session, "model.requested")
        heir.task = group.create_task(heir.worker.run())
        await asyncio.sleep(0.1)
        owner.worker.drain()
        assert owner.task is not None
        await owner.task
        await asyncio.sleep(0.05)
        assert world.store.rows[session].owner == "heir"
        world.model.takes_s = 0
        heir.worker.drain()
