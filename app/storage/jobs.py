"""Side jobs over PgQueuer: what is due is asked of each kind's own rows, the queue only carries it.

sweep, each second   kind.due() → enqueue, in a transaction, deduplicated by kind and id
consume              PgQueuer picks a job → kind.run(id), so many at once and no more

Nothing depends on the queue's rows. A job that is lost, also by emptying the queue, is put in again
by the next sweep; one that failed is kept for people to look at, and its row says when it is due
again. The consumer has a connection of its own, since it listens on it; when that one is lost the
consumer ends and is begun again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, cast

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.qb import (
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.models import Job
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel
from typing_extensions import override

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.process import Clock
from app.runtime.side.jobs import SideJob
from app.storage.engine import Engine

SWEEP_S: Final = 1.0
_PER_SWEEP: Final = 200
_AT_ONCE: Final = 128
_BATCH: Final = 10
_IDLE_LOOK: Final = timedelta(seconds=10)
_PATIENCE_S: Final = 10.0
_REST_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_PURGE_EVERY_S: Final = 600.0

_PURGES: Final = (
    """
    delete from pgqueuer_log where id in (select id from pgqueuer_log
        where created < now() - interval '1 day' order by created limit 10000)
    """,
    """
    delete from pgqueuer where id in (select id from pgqueuer
        where status = 'failed' and updated < now() - interval '7 days' limit 10000)
    """,
)


def fixed_names() -> DBSettings:
    """Return the names of the queue's tables: every one, so that no variable changes any."""
    return DBSettings(
        prefix="",
        db_schema=None,
        channel=Channel("ch_pgqueuer"),
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
    )


_NAMES: Final = fixed_names()


class _Brief(logging.Filter):
    """The queue's own log lines without their tracebacks: they name the error, as ours do."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record."""
        if record.exc_info and record.exc_info[1] is not None:
            record.msg = f"{record.getMessage()} ({_named(record.exc_info[1])})"
            record.args, record.exc_info = None, None
        return True


_BRIEF: Final = _Brief()


class JobQueue:
    """Sweeps and runs the side jobs of this process. `run` belongs into its task group.

    `dsn` must lead to Postgres itself (LISTEN). A job whose process died is picked up by another
    `pick_up_s` later.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        dsn: str,
        kinds: Sequence[SideJob],
        clock: Clock,
        log: Callable[..., None],
        drain_s: float = 10.0,
        pick_up_s: float = 30.0,
    ) -> None:
        """Connect when `run` runs."""
        self._engine = engine
        self._dsn = dsn
        self._kinds = tuple(kinds)
        self._clock = clock
        self._log = log
        self._drain_s = drain_s
        self._pick_up = timedelta(seconds=pick_up_s)
        self._stopping = asyncio.Event()
        self._manager: QueueManager | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._resting: dict[str, float] = {}
        logging.getLogger("pgqueuer").addFilter(_BRIEF)

    def stop(self) -> None:
        """Take no new job; `run` returns when those under way have ended, or the drain is over."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.shutdown.set()

    async def run(self) -> None:
        """Sweep and consume until `stop`."""
        async with asyncio.TaskGroup() as group:
            sweeping = group.create_task(self._sweep_on())
            consuming = group.create_task(self._consume_on())
            try:
                await self._stopping.wait()
                await asyncio.wait({consuming}, timeout=self._drain_s)
            finally:
                # The manager waits for its jobs when it is cancelled; they have to be told, too.
                for task in (sweeping, consuming, *self._running):
                    task.cancel()

    async def _sweep_on(self) -> None:
        purged_s = self._clock.boot_s()
        while True:
            for kind in self._kinds:
                with self._outliving(f"the sweep of {kind.name}"):
                    await self._sweep(kind)
            if self._clock.boot_s() - purged_s > _PURGE_EVERY_S:
                purged_s = self._clock.boot_s()
                with self._outliving("the purge of the queue's log"):
                    for statement in _PURGES:
                        await self._engine.run(statement)
            await self._clock.sleep(SWEEP_S)

    async def _sweep(self, kind: SideJob) -> None:
        now_s = self._clock.boot_s()
        self._resting = {key: until_s for key, until_s in self._resting.items() if until_s > now_s}
        keys = [(f"{kind.name}:{job_id}", job_id) for job_id in await kind.due(_PER_SWEEP)]
        # A broken one that failed here a moment ago does not fill the queue.
        keys = [(key, job_id) for key, job_id in keys if key not in self._resting]
        if not keys:
            return
        async with self._engine.transaction() as connection:
            # A pool hands out its connections behind a proxy that has the methods of one.
            queries = _queries(cast("asyncpg.Connection[asyncpg.Record]", connection))
            await queries.enqueue(
                [kind.name] * len(keys),
                [job_id.encode() for _, job_id in keys],
                [0] * len(keys),
                dedupe_key=[key for key, _ in keys],
                on_conflict="skip",
            )

    async def _consume_on(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            began_s = self._clock.boot_s()
            with self._outliving("the consumer of side jobs"):
                await self._consume()
            if self._clock.boot_s() - began_s > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _consume(self) -> None:
        async with self._connected() as connection:
            manager = QueueManager(_queries(connection), _NAMES.channel)
            for kind in self._kinds:
                manager.entrypoint(
                    kind.name,
                    on_failure="hold",
                    concurrency_limit=kind.parallel,
                    accepts_context=False,
                )(partial(self._run_one, kind))
            self._manager = manager
            # Without this the loss would be noticed only at the next idle look.
            connection.add_termination_listener(lambda _: manager.shutdown.set())
            if self._stopping.is_set():
                return
            await manager.run(
                dequeue_timeout=_IDLE_LOOK,
                batch_size=_BATCH,
                max_concurrent_tasks=_AT_ONCE,
                shutdown_on_listener_failure=True,
                heartbeat_timeout=self._pick_up,
                log_aggregation_interval=timedelta(0),
            )

    @contextlib.asynccontextmanager
    async def _connected(self) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        connection = await asyncpg.connect(
            self._dsn,
            timeout=_PATIENCE_S,
            command_timeout=_PATIENCE_S,
            server_settings={"application_name": "surefoot side jobs", "jit": "off"},
        )
        try:
            yield connection
        finally:
            self._manager = None
            connection.terminate()

    async def _run_one(self, kind: SideJob, job: Job) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._running.add(task)
        job_id = (job.payload or b"").decode()
        try:
            await kind.run(job_id)
        except StoreUnavailable:
            pass  # not the job's fault: its row is as it was, and a sweep finds it again
        except Exception as error:
            self._resting[f"{kind.name}:{job_id}"] = self._clock.boot_s() + _REST_S
            self._tell(f"{kind.name} {job_id}", error)
            raise
        finally:
            self._running.discard(task)

    @contextlib.contextmanager
    def _outliving(self, what: str) -> Iterator[None]:
        """Go on after an error of this part; the next second or the restart tries it again."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one kind, or a lost connection, ends no process
            self._tell(what, error)

    def _tell(self, what: str, error: BaseException) -> None:
        self._log("job.failed", level="warning", what=what, error=_named(error))


def _queries(connection: "asyncpg.Connection[asyncpg.Record]") -> Queries:
    return Queries(
        AsyncpgDriver(connection),
        QueryBuilderEnvironment(_NAMES),
        QueryQueueBuilder(_NAMES),
        QuerySchedulerBuilder(_NAMES),
    )


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
