"""Schedules with real processes: what is due fires, and once, whoever dies or is beside."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from tests.integration.client import Client, Json
from tests.integration.ground import Ground, standing
from tests.integration.stack import Stack, Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import plain
from tests.waiting import until

EACH_MINUTE: Json = {"cron": "* * * * *", "session": {"task": "tick"}}
LATE_S = 60.0


async def schedule(client: Client, **fields: object) -> str:
    made = await client.post("/v1/schedules", fields, expect=201)
    return str(made["id"])


async def sessions_of(client: Client, schedule_id: str) -> dict[str, str]:
    """Return the due times of the sessions that a schedule made; each once, or it fails."""
    listed = (await client.get("/v1/sessions?limit=500"))["data"]
    mine = [s for s in listed if s["metadata"].get("surefoot.schedule") == schedule_id]
    times = Counter(s["metadata"]["surefoot.due_at"] for s in mine)
    assert set(times.values()) <= {1}, times
    return {s["metadata"]["surefoot.due_at"]: s["id"] for s in mine}


async def backdate(stack: Stack, schedule_id: str, minutes: int) -> None:
    """Let a schedule be as it is after so many minutes in which nobody ran."""
    await stack.rows(
        "update schedules set next_at = date_trunc('minute', now()) - $2 * interval '1 minute'"
        " where id = $1",
        schedule_id,
        minutes,
    )


async def caught_up(client: Client, schedule_id: str) -> Json:
    """Return a schedule whose next firing is to come."""
    shown: Json = {}

    async def done() -> bool:
        nonlocal shown
        shown = await client.get(f"/v1/schedules/{schedule_id}")
        return shown["next_at"] is None or datetime.fromisoformat(shown["next_at"]) > now()

    await until(done, timeout_s=LATE_S)
    return shown


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.req("API-16")
async def test_one_moment_fires_in_a_worker(stacks: Stacks) -> None:
    async with (
        ScriptedModel(plain) as model,
        stacks.open(model=model.base_url) as stack,
    ):
        api = await stack.start("api")
        await stack.start("worker")
        client = stack.client(api)
        at = (now() + timedelta(seconds=1)).isoformat()
        schedule_id = await schedule(client, at=at, session={"task": "once"})
        shown = await caught_up(client, schedule_id)
        await until(lambda: _has_run(client, schedule_id), timeout_s=LATE_S)
        (session_id,) = (await sessions_of(client, schedule_id)).values()
        assert (await client.settled(session_id))["status"] == "completed"
        shown = await client.get(f"/v1/schedules/{schedule_id}")
        assert (shown["next_at"], shown["last_session_id"]) == (None, session_id)
        runs = (await client.get(f"/v1/schedules/{schedule_id}/runs"))["data"]
        assert [(r["outcome"], r["session_id"]) for r in runs] == [("fired", session_id)]
        assert datetime.fromisoformat(runs[0]["due_at"]) == datetime.fromisoformat(at)


async def _has_run(client: Client, schedule_id: str) -> bool:
    return bool((await client.get(f"/v1/schedules/{schedule_id}/runs"))["data"])


@pytest.mark.req("API-16", "API-11")
@pytest.mark.parametrize("point", ["create:1:before", "create:1:after"])
async def test_a_worker_killed_around_the_creation(stacks: Stacks, point: str) -> None:
    """It dies before the session is there, or right after: there is one in the end."""
    async with (
        ScriptedModel(plain) as model,
        stacks.open(model=model.base_url) as stack,
    ):
        client = stack.client(await stack.start("api"))
        schedule_id = await schedule(client, **EACH_MINUTE)
        await backdate(stack, schedule_id, 0)
        doomed = await stack.start("worker", point=point, ready=False)
        assert await doomed.wait(LATE_S) == -9
        before = await sessions_of(client, schedule_id)
        assert len(before) == (point == "create:1:after")
        await stack.start("worker")
        shown = await caught_up(client, schedule_id)
        after = await sessions_of(client, schedule_id)
        assert before.items() <= after.items()
        runs = (await client.get(f"/v1/schedules/{schedule_id}/runs"))["data"]
        fired = {r["due_at"]: r["session_id"] for r in runs if r["outcome"] == "fired"}
        assert fired == after
        assert shown["last_session_id"] == after[max(after)]


@pytest.mark.req("API-16")
async def test_two_workers_make_up_for_what_was_missed_once_each(stacks: Stacks) -> None:
    async with (
        ScriptedModel(plain) as model,
        stacks.open(model=model.base_url) as stack,
    ):
        client = stack.client(await stack.start("api"))
        every = await schedule(client, **EACH_MINUTE, missed="all")
        newest = await schedule(client, **EACH_MINUTE, missed="once")
        for schedule_id in (every, newest):
            await backdate(stack, schedule_id, 12)
        await stack.start("worker")
        await stack.start("worker")
        await caught_up(client, every)
        await caught_up(client, newest)
        made = await sessions_of(client, every)
        assert len(made) >= 13
        times = sorted(datetime.fromisoformat(due) for due in made)
        gaps = {b - a for a, b in itertools.pairwise(times)}
        assert gaps == {timedelta(minutes=1)}
        assert 1 <= len(await sessions_of(client, newest)) <= 1 + len(made) - 13
        runs = (await client.get(f"/v1/schedules/{newest}/runs"))["data"]
        assert runs[-1]["outcome"] == "skipped"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made:
        yield made


@pytest.mark.req("API-16")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_session_is_spoken_to_and_a_refusal_is_kept(ground: Ground) -> None:
    client = ground.client
    run = await ground.run(plain)
    soon = (now() + timedelta(seconds=1)).isoformat()
    spoken = await schedule(client, at=soon, session_id=run.id, message="And now?")
    refused = await schedule(
        client, cron="* * * * *", session={"task": "x", "tools": ["echo"]}, missed="all"
    )
    assert (await client.http.delete("/v1/tools/echo")).status_code == 204
    await backdate(ground.stack, refused, 0)
    shown = await caught_up(client, refused)
    assert "There is no enabled tool 'echo'" in shown["last_error"]
    assert await sessions_of(client, refused) == {}
    await until(lambda: _has_run(client, spoken), timeout_s=LATE_S)
    second = await ground.rest(run.id)
    assert second.session["turn"] == 2
    assert second.of("turn.started")[1]["text"] == "And now?"
