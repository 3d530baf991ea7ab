"""The driver: the order of append and effect, the inbox, timeouts, deltas, being dropped."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable

import pytest

from app.core.canonical import Json
from app.core.events import SessionClaimed, ToolFinished, TurnEnded
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import StopReason
from app.runtime.errors import ModelFailure, StoreUnavailable, ToolFailure
from app.runtime.execution.under_way import UnderWay
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.tools import ToolRequest
from app.runtime.streams.frames import Frame
from tests.fakes.interposed import Faults
from tests.fakes.models import Script, calls, results, says
from tests.runtime.scripts import shop, sums, weather
from tests.runtime.world import LEASE_S, TENANT, World, data, seqs
from tests.waiting import until

AWAY = StoreUnavailable("away")


def one_call(name: str, **arguments: object) -> Script:
    """Return a script that calls one tool and then says what came of it."""

    def script(request: ModelRequest) -> ModelReply:
        found = results(request.messages)
        return says(found[-1].content) if found else calls((name, arguments))

    return script


async def hanging(_request: ToolRequest) -> Json:
    await asyncio.sleep(1000)
    return None


def ended(world: World, session: str) -> TurnEnded:
    body = world.journal(session)[-1].body
    assert isinstance(body, TurnEnded)
    return body


async def test_the_claim_rides_in_the_next_append(world: World) -> None:
    world.model.script = shop
    async with world.running():
        session = await world.create()
        await world.frames(session)
        await world.tell(session, "and again")
        await world.frames(session)
    assert all(len(batch) == 1 for batch in world.store.batches)
    claimed = [e for e in world.journal(session) if isinstance(e.body, SessionClaimed)]
    assert [event.body.epoch for event in claimed] == [1, 2]  # type: ignore[union-attr]
    # one append for the claim with the first request, one for each answer; the next turn one more
    assert len(world.store.batches) == (1 + 3) + (1 + 1 + 3)


@pytest.mark.req("API-7")
@pytest.mark.parametrize("delay_ms", range(0, 24, 2))
async def test_a_message_at_the_moment_of_the_end_is_answered(world: World, delay_ms: int) -> None:
    """It arrives before, while and after the last append is on its way."""
    world.store.way_s, world.model.takes_s = 0.004, 0.1
    async with world.running():
        session = await world.create("one")
        await world.moment(session, "model.requested")
        await asyncio.sleep(0.085 + delay_ms / 1000)
        await world.say(session, "two")
        await world.until_turn(session, 2)
    assert ended(world, session).result.text == "You said: two"
    row = world.store.rows[session]
    assert (row.owner, row.inbox_seen) == (None, 1)


async def test_without_the_look_at_release_that_message_would_be_lost(world: World) -> None:
    """What the condition at the release is good for: without it somebody's message is not seen."""
    world.store.on.inbox_at_release = False
    world.store.way_s, world.model.takes_s, world.hub.loses_nudges = 0.004, 0.1, True
    async with world.running():
        session = await world.create("one")
        await world.moment(session, "model.requested")
        await asyncio.sleep(0.099)
        await world.say(session, "two")
        await asyncio.sleep(10)
    row = world.store.rows[session]
    assert (row.owner, row.wake_us, row.inbox_head - row.inbox_seen) == (None, None, 1)


@pytest.mark.req("API-8")
@pytest.mark.case("C071", "C042")
async def test_cancel_cuts_the_model_call(world: World) -> None:
    world.model.takes_s = 50
    async with world.running():
        session = await world.create("one")
        await world.moment(session, "model.requested")
        began = world.clock.boot_s()
        answer = await world.sessions.cancel(TENANT, session)
        assert world.clock.boot_s() - began < 0.6
        assert json.loads(answer.body)["status"] == "cancelled"
        assert world.model.cut == 1
        world.model.takes_s = 0.1
        await world.say(session, "two")
        await world.until_turn(session, 2)
    assert ended(world, session).result.text == "You said: one\n\ntwo"


async def test_cancel_cuts_the_call_also_when_a_next_turn_is_waiting(world: World) -> None:
    world.model.takes_s = 50
    async with world.running():
        session = await world.create("one")
        await world.moment(session, "model.requested")
        await world.say(session, "two")
        await world.moment(session, "message.received")
        world.model.takes_s = 0.1
        await world.sessions.cancel(TENANT, session)
        await world.until_turn(session, 2)
        assert world.clock.boot_s() < 2
        assert world.model.cut == 1
    assert ended(world, session).stop_reason is StopReason.FINAL_ANSWER


@pytest.mark.req("API-8", "STATE-10")
@pytest.mark.case("C042", "C071", "C070")
async def test_cancel_cuts_the_tool_and_closes_its_call(world: World) -> None:
    world.model.script = one_call("slow")
    world.tools.behaviours["slow"] = hanging
    async with world.running():
        session = await world.create()
        await world.moment(session, "tool.intended")
        await asyncio.sleep(1)
        answer = await world.sessions.cancel(TENANT, session)
        assert json.loads(answer.body)["status"] == "cancelled"
        assert world.tools.cut == 1
        world.model.script = shop
        await world.say(session, "hello")
        await world.until_turn(session, 2)
    assert ended(world, session).stop_reason is StopReason.FINAL_ANSWER
    types = world.types(session)
    assert types.count("tool.finished") == types.count("tool.intended")


@pytest.mark.req("LOOP-9")
async def test_the_total_timeout_cuts_a_hanging_tool(world: World) -> None:
    world.model.script = one_call("slow")
    world.tools.behaviours["slow"] = hanging
    async with world.running():
        session = await world.create(limits={"total_timeout_s": 30.0})
        began = world.clock.boot_s()
        await world.frames(session)
        assert 29.9 < world.clock.boot_s() - began < 31
    assert ended(world, session).stop_reason is StopReason.TOTAL_TIMEOUT
    assert world.tools.cut == 1
    assert world.store.rows[session].owner is None


@pytest.mark.req("LOOP-12")
@pytest.mark.case("C088", "C053", "C090")
async def test_parallel_tools_run_at_once_and_fail_alone(world: World) -> None:
    def script(request: ModelRequest) -> ModelReply:
        found = results(request.messages)
        if found:
            return says(" | ".join(one.content for one in found))
        return calls(("get_weather", {}), ("boom", {}), ("slow", {}), ("calculate", {"x": 1}))

    async def boom(_request: ToolRequest) -> Json:
        raise ZeroDivisionError

    async def cancels_itself(_request: ToolRequest) -> Json:
        raise asyncio.CancelledError

    world.model.script = script
    world.tools.behaviours.update(boom=boom, slow=cancels_itself)
    async with world.running():
        session = await world.create()
        await world.frames(session)
    assert world.tools.most_running == 4
    done = [e.body for e in world.journal(session) if isinstance(e.body, ToolFinished)]
    outcomes = {body.name: body.outcome for body in done}
    assert outcomes == {"get_weather": "ok", "boom": "error", "slow": "error", "calculate": "ok"}
    text = ended(world, session).result.text
    parts = text.split(" | ")
    assert ["get_weather" in parts[0], "ZeroDivisionError" in parts[1]] == [True, True]
    assert "CancelledError" in parts[2]


@pytest.mark.req("API-3")
async def test_deltas_come_before_the_answer_they_belong_to(world: World) -> None:
    text = "a text in many pieces, which is said piece by piece"
    world.model.script, world.model.pieces, world.model.takes_s = lambda _r: says(text), 25, 0.5
    async with world.running():
        session = await world.create()
        frames = await world.frames(session)
    deltas = [frame for frame in frames if frame.type == "delta"]
    assert 3 < len(deltas) <= 11  # gathered for 50 ms each
    assert "".join(str(data(frame)["text"]) for frame in deltas) == text
    assert [data(frame)["n"] for frame in deltas] == list(range(1, len(deltas) + 1))
    answered = next(n for n, frame in enumerate(frames) if frame.type == "model.answered")
    assert all(frame.type != "delta" for frame in frames[answered:])


async def test_nobody_listens_so_no_delta_is_made(world: World) -> None:
    world.model.script, world.model.pieces = lambda _r: says("text in pieces"), 5
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
    assert world.hub.published == []


async def _outage_while_the_model_decides(world: World, seconds: float) -> str:
    """Postgres is away while the answer comes that asks for the `once` call."""
    away = False

    async def between(name: str, call: Callable[[], Awaitable[object]]) -> object:
        if away and name not in {"answer", "run", "publish", "put"}:
            raise AWAY
        return await call()

    world.model.script, world.model.takes_s = weather, 2
    node = world.node(between=between)
    async with world.running(node):
        session = await world.create("Weather", limits={"total_timeout_s": 1000.0})
        await until(lambda: len(world.model.asked) == 2)
        away = True
        await asyncio.sleep(seconds)
        away = False
        await asyncio.sleep(30)
    return session


@pytest.mark.req("STATE-4", "TOOL-10")
async def test_an_outage_beyond_the_lease_leaves_no_unsent_call_to_a_person(world: World) -> None:
    session = await _outage_while_the_model_decides(world, 3 * LEASE_S)
    row = world.store.rows[session]
    assert (row.facts.status, row.epoch) == ("completed", 1)
    assert world.tools.done["create_reminder"] == 1
    assert "session.interrupted" not in world.types(session)


async def test_without_asking_again_that_call_would_be_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ours(_effects: UnderWay) -> bool:
        return True

    monkeypatch.setattr(UnderWay, "_still_ours", ours)
    session = await _outage_while_the_model_decides(world, 3 * LEASE_S)
    assert "session.interrupted" in world.types(session)
    assert world.tools.done["create_reminder"] == 0


@pytest.mark.req("STATE-4")
@pytest.mark.case("C069")
async def test_a_lease_in_doubt_sends_nothing(world: World) -> None:
    """The process was stopped while the model answered: the tool is not called by it."""
    world.model.script, world.model.takes_s = weather, 3
    node = world.node()
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.requested", times=2)
        await asyncio.sleep(2.8)
        node.clock.stop(14)  # longer than lease / 2, found by nobody yet
        before = dict(world.tools.delivered)
        await asyncio.sleep(0.3)
        assert dict(world.tools.delivered) == before
        await world.until(session, "completed", "waiting")
    assert world.tools.delivered["create_reminder"] <= 1


async def test_without_the_look_at_the_lease_the_tool_is_called(world: World) -> None:
    """What the look at the lease is good for."""
    world.model.script, world.model.takes_s = weather, 3
    node = world.node()
    node.desk.lease.fresh = lambda: True  # type: ignore[method-assign]
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.requested", times=2)
        await asyncio.sleep(2.8)
        node.clock.stop(14)
        await asyncio.sleep(0.3)
        assert world.tools.delivered["create_reminder"] == 1


@pytest.mark.case("C079")
async def test_postgres_away_for_a_moment_loses_no_session(world: World) -> None:
    faults = Faults()
    faults.before["version"] = [None, AWAY, AWAY]
    faults.before["inbox"] = [AWAY, AWAY]
    faults.before["read_many"] = [AWAY]
    faults.before["read"] = [AWAY, AWAY]
    world.model.script = shop
    node = world.node(between=faults)
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.requested")
        await world.say(session, "more")
        await world.until_turn(session, 2)
    assert node.observer.said("session.crashed") == []
    assert world.store.rows[session].epoch == 1
    assert not any(faults.before.values())


async def test_postgres_away_for_long_holds_everything_up_and_loses_nothing(world: World) -> None:
    faults = Faults()
    world.model.script = weather
    node = world.node(between=faults)
    async with world.running(node):
        session = await world.create()
        await world.moment(session, "model.answered")
        faults.away = AWAY
        await asyncio.sleep(5)
        faults.away = None
        await world.until(session, "completed")
    assert world.tools.done == {"get_weather": 1, "create_reminder": 1}
    assert len(world.model.asked) == 3


@pytest.mark.case("C027")
async def test_a_retry_waits_as_long_as_was_asked(world: World) -> None:
    failures = itertools.count(1)

    def script(_request: ModelRequest) -> ModelReply | ModelFailure:
        if next(failures) > 2:
            return says("at last")
        busy = Fault.of(FaultKind.RATE_LIMITED, "busy", retry_after_us=3_000_000)
        return ModelFailure(busy)

    world.model.script, world.model.takes_s = script, 0
    async with world.running():
        session = await world.create()
        began = world.clock.boot_s()
        await world.frames(session)
        assert 6 <= world.clock.boot_s() - began < 6.2
    assert world.types(session).count("model.failed") == 2
    assert ended(world, session).result.text == "at last"


@pytest.mark.case("C085")
async def test_a_tool_that_failed_is_tried_again_only_where_that_is_safe(world: World) -> None:
    tries = {"save_note": 0, "create_reminder": 0}

    async def flaky(request: ToolRequest) -> Json:
        tries[request.spec.name] += 1
        raise ToolFailure(Fault.of(FaultKind.UNAVAILABLE, "reset"))

    world.tools.behaviours.update(save_note=flaky, create_reminder=flaky)
    async with world.running():
        world.model.script = one_call("save_note")
        await world.frames(await world.create())
        world.model.script = one_call("create_reminder")
        session = await world.create()
        await world.frames(session)
    assert tries == {"save_note": 3, "create_reminder": 1}
    assert "unknown_outcome" in ended(world, session).result.text


async def test_the_hot_state_at_rest_is_the_folded_journal(world: World) -> None:
    world.model.script = sums
    async with world.running():
        session = await world.create()
        await world.frames(session)
    from_hot = world.sealer(session).restore(world.hot.states[session])
    assert from_hot == world.state(session)


async def test_a_snapshot_is_saved_on_the_way_and_its_loss_is_no_matter(world: World) -> None:
    faults = Faults()
    faults.before["save_snapshot"] = [AWAY]
    node = world.node(between=faults)
    async with world.running(node):
        session = await world.create("0")
        for n in range(1, 50):
            await world.until_turn(session, n)
            await world.say(session, str(n))
        await world.until_turn(session, 50)
    assert node.observer.said("session.crashed") == []
    head = world.store.rows[session].head
    assert head > 512
    snapshot = world.store.snapshots[session]
    assert 512 <= snapshot.seq < 530
    assert faults.calls.count("save_snapshot") == 2


async def test_a_row_between_two_turns_is_active(world: World) -> None:
    """A client who polls after its message was taken must not read the result of the last turn."""
    world.store.way_s = 0.02
    seen: set[object] = set()
    async with world.running() as group:
        session = await world.create("one")
        await world.until(session, "completed")

        async def poll() -> None:
            while (shown := await world.shown(session))["turn"] == 1:
                seen.add(shown["status"])
                await asyncio.sleep(0.001)

        await world.say(session, "two")
        group.create_task(poll())
        await world.until_turn(session, 2)
    assert seen <= {"queued", "running"}
    assert seqs(await _all(world, session)) == list(range(1, world.store.rows[session].head + 1))


async def _all(world: World, session: str) -> list[Frame]:
    async with world.api():
        return await world.frames(session)
