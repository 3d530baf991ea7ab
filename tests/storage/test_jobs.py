"""The queue of side jobs on real Postgres: nothing is lost, nothing runs wild."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
import pytest
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import FailingListenerError

from app.runtime.side.jobs import OF_A_KIND
from app.storage import jobs
from app.storage.engine import Engine
from app.storage.jobs import JobQueue
from tests.clocks import RealClock
from tests.waiting import until


@dataclass
class Kind:
    """A kind whose rows are a set: an id is due until it was run without error."""

    name: str = "made_up"
    rows: set[str] = field(default_factory=set)
    runs: Counter[str] = field(default_factory=Counter)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0
    broken: bool = False
    parallel: int = OF_A_KIND

    async def due(self, limit: int) -> Sequence[str]:
        if self.broken:
            raise ValueError(self.name)
        return sorted(self.rows)[:limit]

    async def run(self, job_id: str) -> None:
        self.runs[job_id] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.go.wait()
            if job_id.startswith("bad"):
                raise ValueError(job_id)
            self.rows.discard(job_id)
        finally:
            self.at_once -= 1


def kind(name: str = "made_up", *ids: str, held: bool = False) -> Kind:
    made = Kind(name, set(ids))
    if not held:
        made.go.set()
    return made


@dataclass
class Logged:
    """What the queue said."""

    lines: list[dict[str, object]] = field(default_factory=list)

    def __call__(self, event: str, **fields: object) -> None:
        self.lines.append({"event": event, **fields})


class Running(JobQueue):
    """A queue with the task it runs in."""

    task: asyncio.Task[None]


@asynccontextmanager
async def running(
    engine: Engine,
    dsn: str,
    *kinds: Kind,
    log: Logged | None = None,
    pick_up_s: float = 30,
    drain_s: float = 5,
) -> AsyncIterator["Running"]:
    queue = Running(
        engine=engine,
        dsn=dsn,
        kinds=kinds,
        clock=RealClock(),
        log=log or Logged(),
        pick_up_s=pick_up_s,
        drain_s=drain_s,
    )
    async with asyncio.TaskGroup() as group:
        queue.task = group.create_task(queue.run())
        try:
            yield queue
        finally:
            queue.stop()
            await asyncio.wait({queue.task})


async def test_a_process_that_is_ended_at_once_waits_for_no_job(
    engine: Engine, migrated_url: str
) -> None:
    hung = kind("hung", "id", held=True)
    async with running(engine, migrated_url, hung, drain_s=60) as queue:
        await until(lambda: hung.at_once == 1, timeout_s=30)
        queue.task.cancel()
        await asyncio.wait({queue.task}, timeout=10)
        assert queue.task.done()
    assert hung.at_once == 0


@pytest.mark.req("API-15")
async def test_what_is_due_runs_once_in_two_processes(engine: Engine, migrated_url: str) -> None:
    one = kind("made_up", *(f"id{n}" for n in range(50)))
    async with running(engine, migrated_url, one), running(engine, migrated_url, one):
        await until(lambda: not one.rows, timeout_s=30)
    assert set(one.runs.values()) == {1}


async def test_a_job_under_way_is_not_put_in_again_and_many_run_at_once(
    engine: Engine, migrated_url: str
) -> None:
    held = kind("made_up", *(f"id{n}" for n in range(100)), held=True)
    other = kind("other", "id")
    async with running(engine, migrated_url, held, other):
        await until(lambda: held.at_once == OF_A_KIND, timeout_s=30)
        await until(lambda: not other.rows, timeout_s=30, what="another kind finds room")
        held.go.set()
        await until(lambda: not held.rows, timeout_s=30)
    assert held.most_at_once == OF_A_KIND
    assert set(held.runs.values()) == {1}


async def test_a_kind_says_how_many_of_its_jobs_run_at_once(
    engine: Engine, migrated_url: str
) -> None:
    """What only asks Postgres would take every connection from the sessions beside it."""
    few = kind("few", *(f"id{n}" for n in range(30)), held=True)
    few.parallel = 3
    many = kind("many", *(f"id{n}" for n in range(10)), held=True)
    async with running(engine, migrated_url, few, many):
        await until(lambda: (few.at_once, many.at_once) == (3, 10), timeout_s=30)
        few.go.set()
        many.go.set()
        await until(lambda: not few.rows, timeout_s=30)
    assert few.most_at_once == 3


async def test_emptying_the_queue_loses_nothing(engine: Engine, migrated_url: str) -> None:
    one = kind("made_up", "id", held=True)
    async with running(engine, migrated_url, one):
        await until(lambda: one.runs["id"] == 1, timeout_s=30)
        await engine.run("truncate pgqueuer, pgqueuer_log")
        await until(lambda: one.runs["id"] == 2, timeout_s=30, what="put in again")
        one.go.set()
        await until(lambda: not one.rows, timeout_s=30)


async def test_lost_connections_and_a_lost_listener_are_outlived(
    engine: Engine, migrated_url: str
) -> None:
    one, log = kind("made_up", "first"), Logged()
    async with running(engine, migrated_url, one, log=log):
        await until(lambda: not one.rows, timeout_s=30)
        await engine.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        one.rows.add("second")
        await until(lambda: not one.rows, timeout_s=30)
    assert set(one.runs.values()) == {1}


async def test_a_consumer_that_hears_nothing_is_begun_again(
    engine: Engine, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is there, but what is notified does not arrive (a pooler between)."""
    monkeypatch.setattr(jobs, "_IDLE_LOOK", timedelta(seconds=0.05))

    async def deaf(_manager: QueueManager, timeout: object) -> None:  # noqa: ASYNC109
        del timeout
        raise FailingListenerError

    with monkeypatch.context() as patched:
        patched.setattr(QueueManager, "listener_healthy", deaf)
        one, log = kind("made_up"), Logged()

        def begun_again() -> bool:
            found = [line for line in log.lines if "FailingListener" in str(line["error"])]
            return len(found) >= 2

        async with running(engine, migrated_url, one, log=log):
            await until(begun_again, timeout_s=30)
            patched.undo()
            one.rows.add("id")
            await until(lambda: not one.rows, timeout_s=30)


async def test_a_job_that_fails_is_held_rests_and_does_not_stop_the_others(
    engine: Engine, migrated_url: str
) -> None:
    one, broken, log = kind("made_up", "bad", "good"), kind("broken"), Logged()
    broken.broken = True
    async with running(engine, migrated_url, broken, one, log=log):
        await until(lambda: one.rows == {"bad"}, timeout_s=30)

        async def held() -> bool:
            rows = await engine.rows("select status::text from pgqueuer")
            return [row["status"] for row in rows] == ["failed"]

        await until(held, timeout_s=30)
        sweeps = len([line for line in log.lines if "sweep of broken" in str(line["what"])])

        def swept_twice() -> bool:
            found = [line for line in log.lines if "sweep of broken" in str(line["what"])]
            return len(found) >= sweeps + 2

        await until(swept_twice, timeout_s=30)
        assert one.runs["bad"] == 1
    assert {"event": "job.failed", "level": "warning"}.items() <= log.lines[0].items()
    assert "ValueError: bad" in [line["error"] for line in log.lines]


async def test_a_drain_waits_for_what_runs_and_then_cuts_it(
    engine: Engine, migrated_url: str
) -> None:
    one = kind("made_up", "id", held=True)
    async with running(engine, migrated_url, one) as queue:
        await until(lambda: one.at_once == 1, timeout_s=30)
        queue.stop()
        one.go.set()
    assert not one.rows
    hung = kind("hung", "id", held=True)
    async with running(engine, migrated_url, hung, drain_s=0.1):
        await until(lambda: hung.at_once == 1, timeout_s=30)
    assert (hung.at_once, hung.rows) == (0, {"id"})
    hung.go.set()
    async with running(engine, migrated_url, hung):  # it is free for the next process at once
        await until(lambda: not hung.rows, timeout_s=30)


async def test_a_job_whose_process_died_is_picked_up(engine: Engine, migrated_url: str) -> None:
    """As after a kill: the job is marked as being worked on by a process that says nothing."""
    await engine.run(
        "insert into pgqueuer (priority, queue_manager_id, status, entrypoint, dedupe_key, payload,"
        " slot) values (0, gen_random_uuid(), 'picked', 'made_up', 'made_up:id', 'id', 0)"
    )
    one = kind("made_up", "id")
    async with running(engine, migrated_url, one, pick_up_s=1):
        await until(lambda: not one.rows, timeout_s=30)
    assert one.runs == Counter(id=1)


async def test_the_log_is_purged(
    engine: Engine, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_PURGE_EVERY_S", 0.0)
    monkeypatch.setattr(jobs, "SWEEP_S", 0.01)
    await engine.run(
        "insert into pgqueuer_log (created, job_id, status, priority, entrypoint)"
        " values (now() - interval '2 days', 1, 'queued', 0, 'old'),"
        " (now(), 2, 'queued', 0, 'new')"
    )
    await engine.run(
        "insert into pgqueuer (priority, updated, status, entrypoint)"
        " values (0, now() - interval '8 days', 'failed', 'old'), (0, now(), 'failed', 'new')"
    )

    async def purged() -> bool:
        log = await engine.rows("select entrypoint from pgqueuer_log")
        held = await engine.rows("select entrypoint from pgqueuer")
        return [row[0] for row in (*log, *held)] == ["new", "new"]

    async with running(engine, migrated_url):
        await until(purged, timeout_s=30)


async def test_the_migration_makes_what_the_installed_version_wants(migrated_url: str) -> None:
    connection = await asyncpg.connect(migrated_url)
    try:
        plan = await Queries(AsyncpgDriver(connection)).plan_upgrade()
        assert (list(plan.statements), list(plan.notes)) == ([], [])
    finally:
        await connection.close()


def test_variables_of_the_environment_change_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHANNEL", "QUEUE_TABLE", "PGQUEUER_QUEUE_TABLE", "PGQUEUER_PREFIX", "TRIGGER"):
        monkeypatch.setenv(name, "other")
    names = jobs.fixed_names()
    assert (names.queue_table, names.channel, names.trigger) == (
        "pgqueuer",
        "ch_pgqueuer",
        "tg_pgqueuer_changed",
    )
