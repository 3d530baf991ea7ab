"""The use cases: every status with every verb, idempotency, settling, refusals."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.core.canonical import Json
from app.core.events import Policy
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import PendingKind, Status, StopReason
from app.core.messages import AssistantMessage
from app.runtime.errors import ModelFailure, StoreUnavailable
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.sessions import Delivery
from app.runtime.ports.tools import ToolRequest
from app.runtime.refusals import Conflict, Invalid, KeyInFlight, KeyReused, NotFound, NoWorker
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.idempotency import Answer, Attempt
from tests.fakes.interposed import Faults
from tests.fakes.models import calls, says
from tests.fakes.row import Locked
from tests.runtime.scripts import shop, weather
from tests.runtime.world import LEASE_S, TENANT, World


def attempt(key: str, route: str = "POST /v1", body: bytes = b"{}") -> Attempt:
    return Attempt.of(TENANT, key, route, body)


async def in_status(world: World, status: Status, **facts: object) -> str:
    """Return a session whose row says this, without a worker."""
    session = await world.create("task")
    row = world.store.rows[session]
    row.wake_us = None
    stored = {Status.QUEUED: "active", Status.RUNNING: "active"}.get(status, status.value)
    row.facts = replace(row.facts, status=stored, **facts)  # type: ignore[arg-type]
    if status is Status.RUNNING:
        row.owner = "w1"
        world.store.leases["w1"] = world.clock.now_us() + 10**9
    return session


async def message(world: World, session: str) -> Answer:
    return await world.tell(session, "more")


async def resume(world: World, session: str) -> Answer:
    return await world.sessions.resume(TENANT, session, None, None)


async def resume_raised(world: World, session: str) -> Answer:
    return await world.sessions.resume(TENANT, session, {"max_steps": 50}, None)


TABLE = [
    (Status.QUEUED, {}, message, "session-busy"),
    (Status.RUNNING, {}, message, "session-busy"),
    (Status.WAITING, {"pending_kind": "input"}, message, "started"),
    (Status.WAITING, {"pending_kind": "verification"}, message, "session-busy"),
    (Status.STOPPED, {"stop_reason": "max_steps"}, message, "started"),
    (Status.COMPLETED, {"stop_reason": "final_answer"}, message, "started"),
    (Status.CANCELLED, {"stop_reason": "cancelled"}, message, "started"),
    (Status.FAILED, {"stop_reason": "model_unavailable"}, message, "started"),
    (Status.FAILED, {"stop_reason": "security"}, message, "session-ended"),
    (Status.CLOSED, {"stop_reason": "final_answer"}, message, "session-ended"),
    (Status.QUEUED, {}, resume, "not-resumable"),
    (Status.RUNNING, {}, resume, "not-resumable"),
    (Status.WAITING, {"pending_kind": "input"}, resume, "not-resumable"),
    (Status.STOPPED, {"stop_reason": "max_steps"}, resume, "limits-not-raised"),
    (Status.STOPPED, {"stop_reason": "max_steps"}, resume_raised, "accepted"),
    (Status.STOPPED, {"stop_reason": "token_budget"}, resume_raised, "limits-not-raised"),
    (Status.STOPPED, {"stop_reason": "loop_detected"}, resume_raised, "accepted"),
    (Status.COMPLETED, {"stop_reason": "final_answer"}, resume_raised, "not-resumable"),
    (Status.CANCELLED, {"stop_reason": "cancelled"}, resume, "not-resumable"),
    (Status.FAILED, {"stop_reason": "model_unavailable"}, resume, "accepted"),
    (Status.FAILED, {"stop_reason": "unrecoverable_error"}, resume, "accepted"),
    (Status.FAILED, {"stop_reason": "security"}, resume, "not-resumable"),
    (Status.CLOSED, {"stop_reason": "final_answer"}, resume, "not-resumable"),
]


@pytest.mark.req("API-4", "API-7", "LOOP-13")
@pytest.mark.parametrize(("status", "facts", "verb", "expected"), TABLE)
async def test_the_table_of_status_and_verb(
    world: World,
    status: Status,
    facts: dict[str, str],
    verb: Callable[[World, str], Awaitable[Answer]],
    expected: str,
) -> None:
    session = await in_status(world, status, **facts)
    assert (await world.shown(session))["status"] == status
    if expected not in {"started", "accepted"}:
        with pytest.raises(Conflict) as conflict:
            await verb(world, session)
        assert conflict.value.slug == expected
        assert world.store.rows[session].inbox_head == 0
        return
    answer = await verb(world, session)
    told = json.loads(answer.body)
    assert answer.status == 202
    assert told.get("receipt", "accepted") == expected
    assert (told.get("session") or told)["status"] in {"queued", "running"}
    row = world.store.rows[session]
    assert (row.inbox_head, row.wake_us is None) == (1, False)


@pytest.mark.parametrize(
    ("status", "reason"),
    [("completed", "final_answer"), ("stopped", "max_steps"), ("cancelled", "cancelled")],
)
async def test_cancelling_what_is_over_changes_nothing(
    world: World, status: str, reason: str
) -> None:
    session = await in_status(world, Status(status), stop_reason=reason)
    answer = await world.sessions.cancel(TENANT, session)
    assert (answer.status, json.loads(answer.body)["status"]) == (200, status)
    assert world.store.rows[session].inbox_head == 0


async def test_a_running_session_whose_owner_is_lost_can_be_resumed(world: World) -> None:
    session = await in_status(world, Status.RUNNING)
    world.store.leases["w1"] = 0
    answer = await resume(world, session)
    assert answer.status == 202
    assert world.store.rows[session].wake_us is not None
    async with world.running(world.node("heir")):
        await world.until(session, "completed")


async def test_what_does_not_exist_or_is_anothers_is_not_found(world: World) -> None:
    session = await world.create()
    for tenant, wanted in ((TENANT, "ses_none"), ("other", session)):
        with pytest.raises(NotFound):
            await world.sessions.get(tenant, wanted)
        with pytest.raises(NotFound):
            await world.sessions.message(tenant, wanted, "hi", Policy.REJECT, None)
        with pytest.raises(NotFound):
            await world.sessions.cancel(tenant, wanted)


@pytest.mark.req("API-11")
@pytest.mark.case("C068")
async def test_a_key_stands_for_one_session(world: World) -> None:
    key, wanted = attempt("k"), Wanted(task="once")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.creation.create(TENANT, wanted, key)) for _ in range(10)]
    bodies = {task.result().body for task in tasks}
    assert len(world.store.rows) == len(bodies) == 1
    world.toolstore.specs.clear()
    await asyncio.sleep(1)  # so that the catalogue has noticed
    later = await world.creation.create(TENANT, replace(wanted, tools=("calculate",)), key)
    assert later.replayed
    assert later.body in bodies
    with pytest.raises(KeyReused):
        await world.creation.create(TENANT, wanted, attempt("k", body=b"other"))


@pytest.mark.req("API-11")
@pytest.mark.case("C068", "C084")
async def test_a_key_stands_for_one_message(world: World) -> None:
    session = await in_status(world, Status.COMPLETED, stop_reason="final_answer")
    say = world.sessions.message
    first = await say(TENANT, session, "hi", Policy.REJECT, attempt("m"))
    second = await say(TENANT, session, "hi", Policy.REJECT, attempt("m"))
    assert (first.body, second.replayed) == (second.body, True)
    assert world.store.rows[session].inbox_head == 1
    with pytest.raises(KeyReused):
        await say(TENANT, session, "ho", Policy.REJECT, attempt("m", body=b"x"))
    in_flight = attempt("f").record(world.keyring, 0, b"", None)
    await world.store.begin_remembering(in_flight)
    with pytest.raises(KeyInFlight):
        await say(TENANT, session, "ho", Policy.ENQUEUE, attempt("f"))
    with pytest.raises(Conflict):  # a refusal is not remembered
        await say(TENANT, session, "ho", Policy.REJECT, attempt("r"))
    assert (await say(TENANT, session, "ho", Policy.ENQUEUE, attempt("r"))).status == 202


@pytest.mark.req("API-11")
async def test_one_key_for_two_sessions_at_once_changes_only_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other request under the key commits between our look at it and our own record."""
    session = await in_status(world, Status.COMPLETED, stop_reason="final_answer")
    key = attempt("k")
    whole = Locked.deliver

    async def slow(self: Locked, delivery: Delivery) -> int | None:
        world.store.keep(attempt("k", body=b"other").record(world.keyring, 202, b"{}", None))
        return await whole(self, delivery)

    monkeypatch.setattr(Locked, "deliver", slow)
    with pytest.raises(KeyInFlight):
        await world.sessions.message(TENANT, session, "hi", Policy.REJECT, key)
    assert world.store.rows[session].inbox_head == 0
    with pytest.raises(KeyReused):
        await world.sessions.message(TENANT, session, "hi", Policy.REJECT, key)


@pytest.mark.case("C067")
async def test_of_many_resumes_at_once_one_starts(world: World) -> None:
    world.model.script = lambda _r: ModelFailure(Fault.of(FaultKind.REFUSED_REQUEST, "no"))
    async with world.running():
        session = await world.create()
        await world.until(session, "failed")
        world.model.script = shop

        async def try_it() -> int:
            try:
                return (await resume(world, session)).status
            except Conflict:
                return 409

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(try_it()) for _ in range(20)]
        assert sorted(task.result() for task in tasks) == [202] + [409] * 19
        await world.until_turn(session, 2)
    assert world.types(session).count("session.resumed") == 1
    assert (await world.shown(session))["status"] == "completed"


@pytest.mark.req("LOOP-13", "API-9")
async def test_a_stopped_session_goes_on_with_a_raised_limit(world: World) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if not request.tools:
            return says("So far.")
        done = sum(isinstance(m, AssistantMessage) for m in request.messages)
        return says("All done.") if done > 4 else calls(("calculate", {"n": done}))

    world.model.script = script
    async with world.running():
        session = await world.create(limits={"max_steps": 3})
        await world.until(session, "stopped")
        shown = await world.shown(session)
        assert (shown["stop_reason"], shown["result"]["text"]) == ("max_steps", "So far.")  # type: ignore[index]
        with pytest.raises(Conflict, match="max_steps"):
            await world.sessions.resume(TENANT, session, {"max_steps": 3}, None)
        await world.sessions.resume(TENANT, session, {"max_steps": 20}, None)
        await world.until_turn(session, 2)
    shown = await world.shown(session)
    assert (shown["status"], shown["turn"]) == ("completed", 2)
    assert shown["limits"]["max_steps"] == 20  # type: ignore[index]


@pytest.mark.req("API-8")
async def test_cancel_without_a_worker_is_kept_and_said_so(world: World) -> None:
    async with world.api():
        session = await world.create()
        began = world.clock.boot_s()
        with pytest.raises(NoWorker):
            await world.sessions.cancel(TENANT, session)
        assert 5 + LEASE_S <= world.clock.boot_s() - began < 5 + LEASE_S + 1
    async with world.running():
        await world.until(session, "cancelled")


@pytest.mark.req("API-8")
@pytest.mark.case("C070")
@pytest.mark.parametrize("delay_ms", range(0, 260, 20))
async def test_cancel_or_completion_but_never_both(world: World, delay_ms: int) -> None:
    async with world.running():
        session = await world.create()
        await asyncio.sleep(delay_ms / 1000)
        answer = await world.sessions.cancel(TENANT, session)
        status = json.loads(answer.body)["status"]
        assert status in {"cancelled", "completed"}
        await asyncio.sleep(5)
        assert (await world.shown(session))["status"] == status
    assert world.types(session).count("turn.ended") == 1


async def test_cancel_twice_is_no_conflict(world: World) -> None:
    world.model.takes_s = 30
    async with world.running() as group:
        session = await world.create()
        await asyncio.sleep(1)
        first = group.create_task(world.sessions.cancel(TENANT, session))
        second = await world.sessions.cancel(TENANT, session)
        assert json.loads(second.body)["status"] == "cancelled"
        assert (await first).status == 200
    assert world.store.rows[session].inbox_head == 1


async def test_a_cancel_is_answered_at_once_though_the_next_message_waits(world: World) -> None:
    """The session comes to no rest then: the end of the turn is told by itself."""
    world.model.takes_s = 30
    async with world.running():
        session = await world.create()
        await world.moment(session, "model.requested")
        await world.say(session, "next")
        began = world.clock.boot_s()
        await world.sessions.cancel(TENANT, session)
        assert world.clock.boot_s() - began < 0.1
        await world.sessions.close(TENANT, session)


async def test_a_cancel_that_comes_to_nothing_still_settles_soon(world: World) -> None:
    """The turn ends by itself before the owner reads the cancel: no event tells of it."""
    world.hub.loses_nudges, world.store.way_s = True, 0.004
    async with world.running():
        session = await world.create()
        await world.moment(session, "model.requested")
        await asyncio.sleep(0.202)
        began = world.clock.boot_s()
        answer = await world.sessions.cancel(TENANT, session)
        assert world.clock.boot_s() - began < 1
        assert json.loads(answer.body)["status"] in {"completed", "cancelled"}


async def test_close_ends_the_turn_and_the_session(world: World) -> None:
    world.model.takes_s = 30
    async with world.running():
        session = await world.create()
        await asyncio.sleep(1)
        answer = await world.sessions.close(TENANT, session)
        assert json.loads(answer.body)["status"] == "closed"
        again = await world.sessions.close(TENANT, session)
        assert (again.status, json.loads(again.body)["status"]) == (200, "closed")
        with pytest.raises(Conflict):
            await world.tell(session, "more")
    assert world.types(session)[-2:] == ["turn.ended", "session.closed"]


async def test_closing_a_session_at_rest(world: World) -> None:
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
        answer = await world.sessions.close(TENANT, session)
        assert json.loads(answer.body)["status"] == "closed"


async def _two_in_doubt(world: World) -> str:
    """Return a session that waits to be told what became of two calls."""

    def script(request: ModelRequest) -> ModelReply:
        if len(request.messages) > 1:
            return weather(request) if "error" in str(request.messages) else says("Done.")
        return calls(("create_reminder", {"n": 1}), ("create_reminder", {"n": 2}))

    async def hangs(_request: ToolRequest) -> Json:
        await asyncio.sleep(10_000)
        return None

    world.model.script = script
    world.tools.behaviours["create_reminder"] = hangs
    node = world.node("doomed", between=(faults := Faults()))
    session = await world.create("two reminders")
    loop = asyncio.get_running_loop()
    doomed = loop.create_task(node.worker.run())
    await world.moment(session, "tool.intended", 2)
    await asyncio.sleep(0.1)
    faults.away = StoreUnavailable("dead")
    doomed.cancel()
    await asyncio.wait([doomed])
    world.tools.behaviours.clear()
    return session


@pytest.mark.req("TOOL-10")
async def test_verifications_of_two_calls_close_together(world: World) -> None:
    """The second comes while the first was not looked at yet."""
    async with world.api():
        session = await _two_in_doubt(world)
    verify = world.answers.verify
    async with world.running(world.node("heir")):
        with pytest.raises(Conflict) as early:
            await verify(TENANT, session, "t1_c1_1", None, None, happened=True)
        assert early.value.slug == "verification-not-pending"
        await world.until(session, "waiting")
        row = world.store.rows[session]
        assert row.facts.pending_kind == PendingKind.VERIFICATION
        with pytest.raises(Conflict):
            await verify(TENANT, session, "t1_c9_9", None, None, happened=True)
        await verify(TENANT, session, "t1_c1_1", {"id": 7}, attempt("v"), happened=True)
        again = await verify(TENANT, session, "t1_c1_1", {"id": 7}, attempt("v"), happened=True)
        assert again.replayed
        with pytest.raises(Conflict) as decided:
            await verify(TENANT, session, "t1_c1_1", None, None, happened=False)
        assert decided.value.slug.startswith("verification-")
        await verify(TENANT, session, "t1_c1_2", None, None, happened=True)
        await world.until(session, "completed")
    types = world.types(session)
    assert types.count("verification.decided") == 2
    assert types.count("verification.requested") == 1
    assert world.tools.done["create_reminder"] == 0


async def test_the_doubt_is_put_to_a_person_only_after_lease_and_timeout(world: World) -> None:
    async with world.api():
        session = await _two_in_doubt(world)
        began = world.clock.boot_s()
    async with world.running(world.node("heir")):
        await world.until(session, "waiting")
        waited = world.clock.boot_s() - began
    timeout_s = world.limits.tool_timeout_s
    assert 2 * LEASE_S + timeout_s - 1 < waited < 2 * LEASE_S + timeout_s + 4


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        (Wanted(task="t", model="nope"), "/model"),
        (Wanted(task="t", tools=("calculate", "nope")), "/tools/1"),
    ],
)
async def test_what_cannot_be_had_is_said_with_its_field(
    world: World, wanted: Wanted, pointer: str
) -> None:
    with pytest.raises(Invalid) as invalid:
        await world.creation.create(TENANT, wanted, None)
    assert [fault.pointer for fault in invalid.value.errors] == [pointer]
    assert world.store.rows == {}


async def test_an_erased_session_takes_nothing(world: World) -> None:
    session = await in_status(world, Status.COMPLETED, stop_reason=StopReason.FINAL_ANSWER.value)
    world.store.erase(session)
    assert (await world.sessions.get(TENANT, session)).cipher is None
    with pytest.raises(Conflict) as erased:
        await world.tell(session, "more")
    assert erased.value.slug == "session-erased"
    shown = world.sessions.shown((await world.sessions.get(TENANT, session)).row)
    assert (shown["result"], shown["metadata"]) == (None, {})


async def test_metadata_is_sealed_and_shown(world: World) -> None:
    session = await world.create(metadata={"who": "me"})
    assert (await world.shown(session))["metadata"] == {"who": "me"}
    stored = world.store.rows[session].new.metadata
    assert stored is not None
    assert b"me" not in stored
