"""What `/readyz` and `/metrics` tell of a process, in bounded time whatever hangs.

The question to the database runs in a task of its own, one for all who ask: a Postgres that is
stopped, not gone, refuses nothing and would hold each request for as long as it is stopped.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.bootstrap.edges import Lack, redis_answers, schema_lack
from app.live.link import Link
from app.runtime.execution.worker import Worker
from app.runtime.ports.process import Clock
from app.storage.engine import Engine
from app.telemetry.metrics import Metrics

ANSWER_S: Final = 2.0
"""A database that takes longer to say which schema it has counts as away."""

LAG_PROBE_S: Final = 0.25
LAG_KEPT: Final = 20
"""For so many probes (five seconds) a blocked loop is remembered."""

_WHAT_TO_DO: Final[Mapping[str, str]] = {
    "draining": "This process is ending and hands over what it runs; send requests elsewhere.",
    "database": (
        "Postgres does not answer. Nothing is lost, and work goes on when it is back; look at the "
        "database, at SUREFOOT_DATABASE_URL, and into the log of this process."
    ),
    "schema": "The database lacks this release's schema: run `surefoot migrate`.",
    "worker": "The worker has no fresh lease, so it begins nothing; it renews it by itself.",
    "loop": (
        "The event loop was blocked for long within the last seconds: the process has too little "
        "CPU, or too much to do. More processes, or fewer slots (SUREFOOT_WORKER_SLOTS), help."
    ),
    "redis": (
        "Redis does not answer. Nothing is lost: events reach readers of other processes, and "
        "wake-ups the workers, up to two seconds later; on_disconnect=cancel cancels nothing."
    ),
}


@dataclass(slots=True, kw_only=True)
class LoopLag:
    """How late the event loop has been."""

    clock: Clock
    _late: deque[float] = field(default_factory=lambda: deque([0.0], LAG_KEPT))

    @property
    def now_s(self) -> float:
        """Return the last measure."""
        return self._late[-1]

    @property
    def worst_s(self) -> float:
        """Return the worst of the last seconds."""
        return max(self._late)

    async def run(self) -> None:
        """Measure, for ever."""
        while True:
            before = self.clock.boot_s()
            await self.clock.sleep(LAG_PROBE_S)
            self._late.append(max(0.0, self.clock.boot_s() - before - LAG_PROBE_S))


@dataclass(frozen=True, slots=True)
class _Found:
    """What a probe has found."""

    lack: Lack | None
    redis: bool


@dataclass(slots=True, kw_only=True)
class Readiness:
    """Whether requests should come here. `run` must be running."""

    engine: Engine
    link: Link
    worker: Worker | None
    draining: asyncio.Event
    lag: LoopLag
    most_lag_s: float
    _group: asyncio.TaskGroup | None = None
    _probe: asyncio.Task[_Found] | None = None

    async def run(self) -> None:
        """Measure the loop, and carry the probes, for ever."""
        async with asyncio.TaskGroup() as self._group:
            await self.lag.run()

    async def report(self) -> Mapping[str, object]:
        """Return whether requests should come here, what is missing, and what to do."""
        found = await self._found()
        lack = None if found is None else found.lack
        answers = found is not None and (lack is None or lack.check != "database")
        checks: dict[str, bool] = {
            "database": answers,
            "schema": found is not None and lack is None,
            "worker": self.worker is None or self.worker.healthy,
            "loop": self.lag.worst_s < self.most_lag_s,
        }
        draining = self.draining.is_set()
        missing = [name for name, fine in checks.items() if not fine]
        if not answers:
            missing.remove("schema")  # nobody knows
        if self.worker is None:
            del checks["worker"]
        redis = found is not None and found.redis
        told = [*(["draining"] if draining else []), *missing, *([] if redis else ["redis"])]
        return {
            "ready": not draining and not missing,
            "draining": draining,
            **checks,
            "redis": redis,
            "loop_lag_s": round(self.lag.worst_s, 3),
            "degraded": not redis,
            "problems": [{"check": name, "detail": _WHAT_TO_DO[name]} for name in told],
        }

    async def _found(self) -> _Found | None:
        """Return what a probe finds, None when it takes too long."""
        if self._group is None:
            return None
        if self._probe is None or self._probe.done():
            self._probe = self._group.create_task(self._look())
        done, _ = await asyncio.wait([self._probe], timeout=ANSWER_S)
        return self._probe.result() if done else None

    async def _look(self) -> _Found:
        async with asyncio.TaskGroup() as group:
            redis = group.create_task(redis_answers(self.link))
            lack = group.create_task(schema_lack(self.engine))
        return _Found(lack.result(), redis.result())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """What `/metrics` tells: what was counted, and how the process is at that moment."""

    metrics: Metrics
    link: Link
    worker: Worker | None
    lag: LoopLag

    def render(self) -> bytes:
        """Return it in the text format of Prometheus."""
        self.metrics.redis_up(not self.link.broken)
        self.metrics.loop_lag(self.lag.now_s)
        if self.worker is not None:
            self.metrics.sessions_owned(self.worker.owned)
        return self.metrics.render()
