"""A process put together from settings, and taken apart again."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from app.api.app import Application
from app.bootstrap.cases import Api, Cases
from app.bootstrap.edges import schema_lack
from app.bootstrap.parts import open_parts
from app.bootstrap.readiness import Readiness
from app.bootstrap.timed import timed
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.runtime.execution.worker import Worker
from app.runtime.explaining.auditor import Auditor
from app.runtime.streams.follow import Follower
from app.settings import Loaded, Settings, SettingsError, load
from app.storage.engine import Engine
from app.storage.jobs import JobQueue
from app.storage.listen import Listener
from app.telemetry.observer import TelemetryObserver

Role = Literal["all", "api", "worker"]
SCHEMA_POLL_S: Final = 0.25
GC_YOUNG: Final = 20_000
GC_OLDER: Final = 20


def settings_for(purpose: Literal["serve", "migrate", "fsck", "dev"]) -> Loaded:
    """Read the settings.

    Raises:
        SettingsError: when they are wrong, or lack what this purpose needs.

    """
    loaded = load()
    faults = loaded.serve_faults() if purpose == "serve" else []
    if purpose in {"migrate", "fsck"} and loaded.settings.database_url is None:
        faults = [f"`{purpose}` needs SUREFOOT_DATABASE_URL"]
    if faults:
        raise SettingsError(faults)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process put together. `background` must run for as long as anything else does."""

    settings: Settings
    observer: TelemetryObserver
    app: Application | None
    health: Application
    worker: Worker | None
    jobs: JobQueue | None
    auditor: Auditor | None
    draining: asyncio.Event
    _readiness: Readiness
    _api: Api | None
    _engine: Engine
    _hub: RedisHub
    _hot: RedisHotStates
    _follower: Follower
    _listener: Listener
    _stopped_at: list[float] = field(default_factory=list)

    async def background(self) -> None:
        """Keep the live hub, the readers and the fallback for nudges running."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._warn_of_eviction())
            group.create_task(self._hub.run())
            group.create_task(self._follower.run())
            group.create_task(self._listener.run())
            if self.auditor is not None:
                group.create_task(self.auditor.run())
            group.create_task(self._readiness.run())
            if self._api is not None:
                group.create_task(self._api.admission.run())
                group.create_task(self._api.audience.run())

    async def _warn_of_eviction(self) -> None:
        """Say once that this Redis drops hot states at will, where it does."""
        warning = await self._hot.warning()
        if warning is not None:
            self.observer.log("redis.evicts", level="warning", detail=warning)

    async def work(self) -> None:
        """Run sessions and side jobs, once the schema is there, until `stop` and the drain."""
        if self.worker is None or self.jobs is None or not await self._schema_came():
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.jobs.run())
            await self.worker.run()
            self.observer.log("drain.ended", took_s=self._drained_s())

    def stop(self) -> None:
        """Let `work` hand its sessions over and return; from here on the process is not ready."""
        self.draining.set()
        if self.jobs is not None:
            self.jobs.stop()
        self._stopped_at.append(asyncio.get_running_loop().time())
        if self.worker is not None:
            if self.worker.owned:
                detail = f"waiting for running steps, up to {self.settings.drain_s:g} s"
                self.observer.log("drain.waits", detail=detail)
            self.worker.drain()

    def _drained_s(self) -> float:
        began = self._stopped_at or [asyncio.get_running_loop().time()]
        return round(asyncio.get_running_loop().time() - began[0], 3)

    async def _schema_came(self) -> bool:
        """Return once the schema is there; False when the process is to stop before that."""
        told: str | None = None
        while not self.draining.is_set():
            lack = await schema_lack(self._engine)
            if lack is None:
                return True
            if told != lack.detail:
                self.observer.log("schema.awaited", level="warning", detail=lack.detail)
                told = lack.detail
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SCHEMA_POLL_S):
                    await self.draining.wait()
        return False


@asynccontextmanager
async def open_service(loaded: Loaded, role: Role) -> AsyncIterator[Service]:
    """Put a process together and take it apart again at the end."""
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        parts = await open_parts(settings, stack)
        for warning in loaded.warnings:
            parts.observer.log("settings.warning", level="warning", detail=warning)
        draining = asyncio.Event()
        _spare_the_collector()
        worker = None if role == "api" else parts.worker()
        cases = Cases(parts)
        own = parts.probes(worker, draining)
        api = None if role == "worker" else cases.api(own.probes)
        yield Service(
            settings=settings,
            observer=parts.observer,
            app=None if api is None else api.app,
            health=own.app,
            worker=worker,
            jobs=None if worker is None else parts.side.queue(timed(cases)),
            auditor=None if role == "api" else parts.auditor(),
            draining=draining,
            _readiness=own.readiness,
            _api=api,
            _engine=parts.engine,
            _hub=parts.hub,
            _hot=parts.hot,
            _follower=parts.follower,
            _listener=parts.listener,
        )


def _spare_the_collector() -> None:
    """Leave what was imported out of garbage collection, and collect the rest less often.

    The thousands of modules and classes live as long as the process; a session makes some ten
    thousand short-lived objects, most of them freed by their reference count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_OLDER, GC_OLDER)
