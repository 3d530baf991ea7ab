"""The schedule port, on the fake and on Postgres."""

import asyncio
from dataclasses import replace

import pytest

from app.runtime.clock import SystemClock
from app.runtime.side.schedule_records import MOST_RUNS, Outcome, Run, ScheduleRow
from app.runtime.side.timing import Missed, Timing
from tests.conformance.conftest import Stores
from tests.making import remember

SECOND = 1_000_000


def schedule(schedule_id: str = "sch_1", **fields: object) -> ScheduleRow:
    now = SystemClock().now_us()
    known: dict[str, object] = {
        "id": schedule_id,
        "tenant": "default",
        "name": "report",
        "timing": Timing(cron="0 * * * *", timezone="Europe/Berlin"),
        "missed": Missed.ALL,
        "paused": False,
        "session_id": None,
        "content": b"sealed",
        "version": 1,
        "created_at_us": now,
        "updated_at_us": now,
        "next_us": now - SECOND,
    }
    return ScheduleRow(**{**known, **fields})  # type: ignore[arg-type]


def fired(row: ScheduleRow, session_id: str | None = "ses_1", *, late: int = 0) -> Run:
    due = (row.next_us or 0) + late
    outcome = Outcome.FAILED if session_id is None else Outcome.FIRED
    error = "no model" if session_id is None else None
    return Run(due_us=due, at_us=due + 5, outcome=outcome, session_id=session_id, error=error)


@pytest.mark.req("API-16")
async def test_a_schedule_is_stored_whole(stores: Stores) -> None:
    row = schedule()
    moment = schedule("sch_2", timing=Timing(at_us=5 * SECOND), session_id="ses_1", name=None)
    for one in (row, moment):
        await stores.schedules.create(one)
    assert await stores.schedules.get("default", "sch_1") == row
    assert await stores.schedules.page("default", after=None, limit=9) == [moment, row]
    assert await stores.schedules.page("default", after="sch_2", limit=9) == [row]
    assert await stores.schedules.get("other", "sch_1") is None
    async with stores.schedules.locked("other", "sch_1") as locked:
        assert locked is None


async def test_due_is_what_has_come_and_is_neither_paused_nor_resting(stores: Stores) -> None:
    now = SystemClock().now_us()
    for n, fields in enumerate(
        [
            {"next_us": now - SECOND},
            {"next_us": now - 9 * SECOND},
            {"next_us": now + 900 * SECOND},
            {"next_us": None},
            {"paused": True},
            {"retry_us": now + 900 * SECOND},
            {"next_us": now - 5 * SECOND, "retry_us": now - SECOND},
        ]
    ):
        await stores.schedules.create(schedule(f"sch_{n}", **fields))  # type: ignore[arg-type]
    assert list(await stores.schedules.due(9)) == ["sch_1", "sch_6", "sch_0"]
    assert list(await stores.schedules.due(1)) == ["sch_1"]


@pytest.mark.req("API-16")
async def test_only_one_moves_it_on(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    next_us = (row.next_us or 0) + 3600 * SECOND
    async with asyncio.TaskGroup() as group:
        tries = [
            group.create_task(stores.schedules.advance(row, fired(row), next_us)) for _ in range(5)
        ]
    assert sorted(t.result() for t in tries) == [False] * 4 + [True]
    now = await stores.schedules.find(row.id)
    assert now is not None
    assert now.row == replace(
        row, next_us=next_us, last_us=fired(row).at_us, last_session_id="ses_1"
    )
    assert await stores.schedules.runs(row.id, 9) == [fired(row)]


async def test_a_session_is_noted_also_when_the_schedule_moved_on(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    async with stores.schedules.locked("default", row.id) as locked:
        assert locked is not None
        assert locked.seen.row == row
        changed = replace(locked.seen.row, version=2, paused=True, next_us=None, name="new")
        await locked.save(changed)
    assert not await stores.schedules.advance(row, fired(row, None), None)
    assert await stores.schedules.runs(row.id, 9) == []
    assert not await stores.schedules.advance(row, fired(row), None)
    assert await stores.schedules.runs(row.id, 9) == [fired(row)]
    assert await stores.schedules.get("default", row.id) == changed


async def test_a_session_is_noted_also_when_another_worker_left_its_time_out(
    stores: Stores,
) -> None:
    """Two saw the firing due: one made it in time, the other noted first that it was missed."""
    row = schedule()
    await stores.schedules.create(row)
    skipped = replace(fired(row), outcome=Outcome.SKIPPED, session_id=None, error="missed")
    assert await stores.schedules.advance(row, skipped, (row.next_us or 0) + 1)
    assert not await stores.schedules.advance(row, fired(row), (row.next_us or 0) + 2)
    assert await stores.schedules.runs(row.id, 10) == [fired(row)]
    assert not await stores.schedules.advance(row, skipped, (row.next_us or 0) + 1)
    assert await stores.schedules.runs(row.id, 10) == [fired(row)]


async def test_what_was_left_out_is_not_the_last_time(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    skipped = replace(fired(row), outcome=Outcome.SKIPPED, session_id=None, error="missed")
    assert await stores.schedules.advance(row, skipped, (row.next_us or 0) + 1)
    now = await stores.schedules.get("default", row.id)
    assert now == replace(row, next_us=(row.next_us or 0) + 1)


async def test_a_fault_is_noted_and_waited_for(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    await stores.schedules.postpone(replace(row, version=7), "old", 60)
    assert list(await stores.schedules.due(9)) == ["sch_1"]
    await stores.schedules.postpone(row, "KeyMissing", 60)
    assert list(await stores.schedules.due(9)) == []
    now = await stores.schedules.get("default", row.id)
    assert now is not None
    assert (now.next_us, now.last_error) == (row.next_us, "KeyMissing")
    assert await stores.schedules.advance(now, fired(row, None), None)
    after = await stores.schedules.get("default", row.id)
    assert after is not None
    assert (after.retry_us, after.next_us, after.last_error) == (None, None, "no model")


async def test_the_latest_runs_are_kept(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    for n in range(MOST_RUNS + 5):
        run = fired(row, f"ses_{n}", late=n)
        assert await stores.schedules.advance(row, run, row.next_us)
    runs = await stores.schedules.runs(row.id, 500)
    assert [run.session_id for run in runs] == [f"ses_{n}" for n in range(MOST_RUNS + 4, 4, -1)]
    by_hand = replace(fired(row, "ses_hand", late=500), by_hand=True)
    await stores.schedules.note(row, by_hand)
    runs = await stores.schedules.runs(row.id, 500)
    assert (len(runs), runs[0]) == (MOST_RUNS, by_hand)


@pytest.mark.req("API-16")
async def test_a_firing_is_forestalled_or_was_made(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    for key, expected in (("k", True), ("k", False)):
        async with stores.schedules.locked("default", row.id) as locked:
            assert locked is not None
            assert await locked.forestall(remember(key, status=410)) is expected
    known = await stores.sessions.recall("default", "k")
    assert known is not None
    assert known.status == 410


async def test_what_is_deleted_is_gone_with_its_runs(stores: Stores) -> None:
    row = schedule()
    await stores.schedules.create(row)
    await stores.schedules.note(row, fired(row))
    async with stores.schedules.locked("default", row.id) as locked:
        assert locked is not None
        await locked.delete()
    assert await stores.schedules.find(row.id) is None
    assert await stores.schedules.runs(row.id, 9) == []
    assert not await stores.schedules.advance(row, fired(row), None)
    await stores.schedules.note(row, fired(row))
    assert await stores.schedules.runs(row.id, 9) == []
