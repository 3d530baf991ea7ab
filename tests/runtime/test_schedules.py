"""Schedules on virtual time: what fires, what is left out, and that nothing fires twice."""

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from app.core.events import Policy
from app.runtime.errors import KeyMissing, StoreUnavailable
from app.runtime.ports.sessions import SessionStore
from app.runtime.refusals import Invalid, NotFound
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.idempotency import Attempt
from app.runtime.side.firing import AFTER_FAULT_S, DUE_KEY, SCHEDULE_KEY, Firing, Scheduling
from app.runtime.side.jobs import SideJob
from app.runtime.side.schedule_records import (
    Outcome,
    ScheduleRow,
    Spoken,
    Target,
    open_target,
    shown_target,
)
from app.runtime.side.schedules import Asked, Schedules
from app.runtime.side.timing import Missed, Timing, read_timing
from app.runtime.times import rfc3339
from app.storage.keys import MasterKeys
from tests.fakes.interposed import Between, interposed
from tests.fakes.schedules import MemorySchedules
from tests.runtime.world import TENANT, World, plainly

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Nobody:
    """A process that does nothing."""

    name = "schedules"
    parallel = 1

    async def due(self, limit: int) -> list[str]:
        del limit
        return []

    async def run(self, job_id: str) -> None:
        raise AssertionError(job_id)


@dataclass
class Clockwork:
    """Schedules over the world's stores, with workers as many as a test wants."""

    world: World
    store: MemorySchedules

    @property
    def use(self) -> Schedules:
        world = self.world
        return Schedules(
            clock=world.clock,
            keyring=world.keyring,
            store=self.store,
            sessions=world.store,
            firing=Firing(creation=world.creation, sessions=world.sessions),
        )

    def worker(self, between: Between = plainly, keyring: MasterKeys | None = None) -> Scheduling:
        """Return the side job of one process, with something between it and its ports."""
        world = self.world
        sessions: SessionStore = interposed(world.store, between)
        creation = replace(world.creation, store=sessions)
        return Scheduling(
            keyring=keyring or world.keyring,
            store=interposed(self.store, between),
            sessions=sessions,
            firing=Firing(creation=creation, sessions=replace(world.sessions, store=sessions)),
            log=lambda *_args, **_fields: None,
        )

    async def make(self, target: Target | None = None, **asked: object) -> ScheduleRow:
        """Create a schedule: each hour, unless told otherwise."""
        wanted = {
            "name": None,
            "timing": Timing(cron="0 * * * *"),
            "missed": Missed.ONCE,
            "paused": False,
            "target": target or Wanted(task="report"),
            **asked,
        }
        return await self.use.create(TENANT, Asked(**wanted))  # type: ignore[arg-type]

    async def at(self, at_us: int, *workers: SideJob) -> None:
        """Let time pass until then, and the workers do what is due."""
        self.world.clock.stop((at_us - self.world.clock.now_us()) / SECOND)
        for worker in workers or (self.worker(),):
            for schedule_id in await worker.due(100):
                await worker.run(schedule_id)

    async def made(self) -> list[tuple[str, str]]:
        """Return the due times and tasks of the sessions that schedules made, the oldest first."""
        found = []
        for session_id in self.world.store.rows:
            shown = await self.world.shown(session_id)
            due = shown["metadata"].get(DUE_KEY)  # type: ignore[attr-defined]
            first = json.loads(self.world.codec.encode(self.world.journal(session_id)[1]))
            found.append((clock(due), first["data"]["text"]))
        return found

    async def runs(self, row: ScheduleRow) -> list[tuple[str, Outcome]]:
        return [(clock(run.due_us), run.outcome) for run in await self.store.runs(row.id, 100)]


def clock(at: object) -> str:
    """Return the hour and minute of a time."""
    if isinstance(at, int):
        return f"{datetime.fromtimestamp(at / SECOND, UTC):%H:%M}"
    return str(at)[11:16]


@pytest.fixture
def works(world: World) -> Clockwork:
    return Clockwork(world, MemorySchedules(world.clock, world.store.take))


async def test_a_schedule_fires_each_time_once(works: Clockwork) -> None:
    row = await works.make(Wanted(task="report", metadata={"who": "me"}))
    assert clock(row.next_us) == "09:00"
    for hour in range(1, 4):
        await works.at((row.next_us or 0) + hour * HOUR - HOUR + SECOND)
    assert await works.made() == [("09:00", "report"), ("10:00", "report"), ("11:00", "report")]
    now = await works.use.get(TENANT, row.id)
    assert clock(now.next_us) == "12:00"
    assert now.last_session_id == list(works.world.store.rows)[-1]
    shown = await works.world.shown(now.last_session_id or "")
    assert shown["metadata"] == {
        "who": "me",
        SCHEDULE_KEY: row.id,
        DUE_KEY: "2027-01-15T11:00:00.000000Z",
    }


async def test_one_moment_fires_once_and_is_over(works: Clockwork) -> None:
    now = works.world.clock.now_us()
    timing = read_timing(None, "2027-01-15T09:30:00+01:00", "UTC", now)
    row = await works.make(timing=timing)
    await works.at((row.next_us or 0) + SECOND)
    await works.at((row.next_us or 0) + HOUR)
    assert await works.made() == [("08:30", "report")]
    assert (await works.use.get(TENANT, row.id)).next_us is None
    with pytest.raises(Invalid):
        await works.make(timing=timing)


@pytest.mark.req("API-16")
@pytest.mark.parametrize(
    ("missed", "late_s", "fired", "runs"),
    [
        (Missed.SKIP, 2, ["12:00"], ["12:00 fired", "09:00 skipped"]),
        (Missed.SKIP, 600, [], ["09:00 skipped"]),
        (Missed.ONCE, 600, ["12:00"], ["12:00 fired", "09:00 skipped"]),
        (
            Missed.ALL,
            600,
            ["09:00", "10:00", "11:00", "12:00"],
            ["12:00 fired", "11:00 fired", "10:00 fired", "09:00 fired"],
        ),
    ],
)
async def test_while_nobody_ran(
    works: Clockwork, missed: Missed, late_s: int, fired: list[str], runs: list[str]
) -> None:
    row = await works.make(missed=missed)
    await works.at((row.next_us or 0) + 3 * HOUR + late_s * SECOND)
    assert [due for due, _ in await works.made()] == fired
    assert [f"{due} {outcome}" for due, outcome in await works.runs(row)] == runs
    assert clock((await works.use.get(TENANT, row.id)).next_us) == "13:00"


@pytest.mark.req("API-16")
@pytest.mark.parametrize("missed", list(Missed))
async def test_a_pause_is_not_missed(works: Clockwork, missed: Missed) -> None:
    row = await works.make(missed=missed)
    assert (await works.use.pause(TENANT, row.id)).next_us is None
    await works.at((row.next_us or 0) + 3 * HOUR)
    resumed = await works.use.resume(TENANT, row.id)
    assert clock(resumed.next_us) == "13:00"
    await works.at(resumed.next_us or 0)
    assert [due for due, _ in await works.made()] == ["13:00"]
    assert (await works.use.resume(TENANT, row.id)).version == resumed.version, "it was not paused"


async def dying(name: str, call: object) -> object:
    """End a process when the session is made and nothing of it is noted yet."""
    if name in {"advance", "postpone"}:
        raise StoreUnavailable("the process is gone")
    return await call()  # type: ignore[operator]


@pytest.mark.req("API-16", "API-11")
@pytest.mark.parametrize("missed", list(Missed))
@pytest.mark.parametrize("later_s", [1, 5 * 3600])
@pytest.mark.parametrize("target", ["session", "message"])
async def test_a_death_between_the_firing_and_its_note(
    works: Clockwork, missed: Missed, later_s: int, target: str
) -> None:
    """Whatever the rule, and however late the next worker comes, nothing is done twice."""
    spoken_to = await works.world.create("listen")
    spoken = Spoken(session_id=spoken_to, text="tick", policy=Policy.ENQUEUE)
    row = await works.make(spoken if target == "message" else None, missed=missed)

    with pytest.raises(StoreUnavailable):
        await works.at((row.next_us or 0) + SECOND, works.worker(dying))
    await works.at((row.next_us or 0) + later_s * SECOND + SECOND)
    runs = await works.runs(row)
    assert runs[-1] == ("09:00", Outcome.FIRED), "known again by its key"
    made = len(works.world.store.rows) - 1 + len(works.world.store.rows[spoken_to].inbox)
    assert made == sum(outcome is Outcome.FIRED for _, outcome in runs)


@pytest.mark.req("API-16")
async def test_two_workers_at_once_make_one_session(works: Clockwork) -> None:
    row = await works.make()
    await works.at((row.next_us or 0) + SECOND, Nobody())
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(works.worker().run(row.id))
    assert await works.made() == [("09:00", "report")]
    assert await works.runs(row) == [("09:00", Outcome.FIRED)]


def stalling(reached: asyncio.Event, go: asyncio.Event) -> Between:
    """Hold a worker right before it makes the session."""

    async def between(name: str, call: object) -> object:
        if name == "create":
            reached.set()
            await go.wait()
        return await call()  # type: ignore[operator]

    return between


@pytest.mark.req("API-16")
@pytest.mark.parametrize("what", ["pause", "delete", "new task", "new time"])
async def test_whoever_changes_it_has_the_last_word(works: Clockwork, what: str) -> None:
    """A worker that had read the schedule before makes no session of what it said then."""
    row = await works.make()
    reached, go = asyncio.Event(), asyncio.Event()
    await works.at((row.next_us or 0) + SECOND, Nobody())
    async with asyncio.TaskGroup() as group:
        group.create_task(works.worker(stalling(reached, go)).run(row.id))
        await reached.wait()
        asked = Asked(
            name=None,
            timing=Timing(cron="30 * * * *") if what == "new time" else row.timing,
            missed=Missed.ONCE,
            paused=False,
            target=Wanted(task="another"),
        )
        match what:
            case "pause":
                await works.use.pause(TENANT, row.id)
            case "delete":
                await works.use.delete(TENANT, row.id)
            case _:
                await works.use.change(TENANT, row.id, asked)
        go.set()
    await works.at(works.world.clock.now_us() + 60 * SECOND)
    expected = [("09:00", "another")] if what == "new task" else []
    assert await works.made() == expected


async def test_a_change_in_time_changes_only_what_comes(works: Clockwork) -> None:
    row = await works.make()
    asked = Asked(
        name="renamed",
        timing=row.timing,
        missed=Missed.ALL,
        paused=False,
        target=Wanted(task="another"),
    )
    changed = await works.use.change(TENANT, row.id, asked)
    assert (changed.next_us, changed.version) == (row.next_us, 2)
    await works.at((row.next_us or 0) + SECOND)
    again = await works.use.change(TENANT, row.id, asked)
    assert clock(again.next_us) == "10:00", "what was made is not made again"
    assert await works.made() == [("09:00", "another")]


@pytest.mark.req("API-16")
async def test_a_refusal_is_kept_and_holds_up_nobody(works: Clockwork) -> None:
    bad = await works.make(Wanted(task="x", tools=("boom",)))
    good = await works.make()
    works.world.toolstore.specs.clear()
    works.world.creation.catalog.forget(TENANT)
    await works.at((bad.next_us or 0) + SECOND)
    row = await works.use.get(TENANT, bad.id)
    assert "/tools/0: There is no enabled tool 'boom'" in (row.last_error or "")
    assert clock(row.next_us) == "10:00", "it goes on"
    assert await works.runs(bad) == [("09:00", Outcome.FAILED)]
    assert await works.runs(good) == [("09:00", Outcome.FIRED)]
    with pytest.raises(Invalid) as refused:
        await works.make(Wanted(task="x", tools=("boom",)))
    assert refused.value.errors[0].pointer == "/session/tools/0"


@pytest.mark.req("SAFE-5")
async def test_a_full_queue_costs_time_and_no_firing(works: Clockwork) -> None:
    row = await works.make(Wanted(task="nightly"))
    full = replace(
        works.world.creation,
        admission=Admission(workers=works.world.store, clock=works.world.clock, most=0),
    )
    job = works.worker()
    refusing = replace(job, firing=replace(job.firing, creation=full))
    assert row.next_us is not None
    await works.at(row.next_us, refusing)
    assert (await works.made(), await works.runs(row)) == ([], [])
    kept = await works.use.get(TENANT, row.id)
    assert kept.last_error is not None
    assert "SUREFOOT_MAX_QUEUED" in kept.last_error
    assert await works.worker().due(9) == [], "not at once"
    await works.at(row.next_us + 11 * SECOND)
    assert await works.made() == [(clock(rfc3339(row.next_us)), "nightly")]
    assert [outcome for _, outcome in await works.runs(row)] == [Outcome.FIRED]


async def test_a_key_that_is_not_here_costs_time_and_no_firing(works: Clockwork) -> None:
    row = await works.make()
    poor = works.worker(keyring=MasterKeys({"other": b"o" * 32}))
    await works.at((row.next_us or 0) + SECOND, poor)
    told = await works.use.get(TENANT, row.id)
    assert "KeyMissing" in (told.last_error or "")
    assert told.next_us == row.next_us
    assert list(await poor.due(10)) == [], "not each second"
    await works.at(works.world.clock.now_us() + round(AFTER_FAULT_S) * SECOND)
    assert await works.made() == [("09:00", "report")]
    assert (await works.use.get(TENANT, row.id)).last_error is None


async def test_content_opens_only_in_its_own_schedule(works: Clockwork) -> None:
    one, two = await works.make(Wanted(task="mine")), await works.make()
    works.store.rows[two.id] = replace(two, content=one.content)
    await works.at((two.next_us or 0) + SECOND)
    assert await works.made() == [("09:00", "mine")]
    assert "Tampered" in (works.store.rows[two.id].last_error or "")
    with pytest.raises(KeyMissing):
        open_target(MasterKeys({"other": b"o" * 32}), one)


async def test_speaking_to_a_session(works: Clockwork) -> None:
    session_id = await works.world.create("listen")
    target = Spoken(session_id=session_id, text="tick", policy=Policy.REJECT)
    row = await works.make(target)
    assert row.session_id == session_id
    await works.at((row.next_us or 0) + SECOND)
    told = await works.use.get(TENANT, row.id)
    assert "busy" in (told.last_error or "")
    assert shown_target(target) == {
        "session_id": session_id,
        "message": "tick",
        "when_busy": "reject",
    }
    with pytest.raises(Invalid):
        await works.make(replace(target, session_id="ses_none"))


async def test_firing_by_hand_is_out_of_turn_and_once_for_its_key(works: Clockwork) -> None:
    row = await works.make(paused=True)
    attempt = Attempt.of(TENANT, "k", "POST /fire", b"")
    first = await works.use.fire(TENANT, row.id, attempt)
    again = await works.use.fire(TENANT, row.id, attempt)
    assert (again.body, again.replayed) == (first.body, True)
    assert len(works.world.store.rows) == 1
    runs = await works.store.runs(row.id, 10)
    assert [(run.by_hand, run.session_id) for run in runs] == [(True, first.session_id)]
    assert (await works.use.get(TENANT, row.id)).next_us is None
    with pytest.raises(NotFound):
        await works.use.fire(TENANT, "sch_none", None)


async def test_an_erased_session_does_not_hold_its_schedule_up(works: Clockwork) -> None:
    """Its firing's key tells no session any more, but that it was made."""
    row = await works.make()
    attempt_key = row.firing(row.next_us or 0)
    with pytest.raises(StoreUnavailable):
        await works.at((row.next_us or 0) + SECOND, works.worker(dying))
    (session_id,) = works.world.store.rows
    works.world.store.erase(session_id)
    assert works.world.store.known(TENANT, attempt_key) is not None
    await works.at((row.next_us or 0) + 2 * SECOND)
    assert list(works.world.store.rows) == [session_id]
    assert clock((await works.use.get(TENANT, row.id)).next_us) == "10:00"


async def test_a_conflict_of_keys_is_a_refusal(works: Clockwork) -> None:
    """Somebody used the firing's own key for a request of his: that firing is told as failed."""
    row = await works.make()
    key = row.firing(row.next_us or 0)
    attempt = Attempt.of(TENANT, key, "POST /v1/sessions", b"mine")
    await works.world.creation.create(TENANT, Wanted(task="mine"), attempt)
    await works.at((row.next_us or 0) + SECOND)
    assert await works.runs(row) == [("09:00", Outcome.FAILED)]
