"""What runs beside the sessions in each process: side jobs in workers, audiences in APIs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from app.core.lifecycle import Verb
from app.runtime.errors import StoreUnavailable
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.sessions import SessionRow
from app.runtime.sessions.audience import Audience
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.deliveries import Composer, Deliveries
from app.runtime.side.firing import Scheduling
from app.runtime.side.jobs import SideJob
from tests.simulation.cases import Cases, Place, use_cases
from tests.simulation.loop import Process
from tests.simulation.promises import Promises
from tests.simulation.small import SimClock

SWEEP_S = 1.0
MOST = 20
HOLD_S = 3.0


@dataclass
class SideJobs:
    """A queue that has each worker do every job that it sees is due, so often two at once."""

    kinds: Sequence[SideJob]
    clock: SimClock
    promises: Promises
    stopping: bool = False
    under_way: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        """Sweep until told to stop."""
        async with asyncio.TaskGroup() as group:
            while not self.stopping:
                await self.clock.sleep(SWEEP_S)
                for kind in self.kinds if self.promises.any else ():
                    await self._sweep(kind, group)

    async def _sweep(self, kind: SideJob, group: asyncio.TaskGroup) -> None:
        try:
            due = await kind.due(MOST)
        except StoreUnavailable:
            return
        for job_id in due:
            if (kind.name, job_id) not in self.under_way:
                self.under_way.add((kind.name, job_id))
                group.create_task(self._run(kind, job_id))

    async def _run(self, kind: SideJob, job_id: str) -> None:
        try:
            await kind.run(job_id)
        except StoreUnavailable:
            pass  # its row says when it is due again
        except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed
            self.promises.audit.fail(f"the side job {kind.name} {job_id} raised {error!r}")
        finally:
            self.under_way.discard((kind.name, job_id))


def side_jobs(place: Place) -> SideJobs:
    """Return the side jobs of a worker, as the service wires them."""
    cluster, clock, cases = place.cluster, place.clock, use_cases(place)

    def log(event: str, **fields: object) -> None:
        cluster.audit.note(place.process.name, "log", event, *fields.values())
        if event == "schedule.failed":
            cluster.audit.fail(f"a firing failed: {fields['why']}")

    scheduling = Scheduling(
        keyring=cluster.keyring,
        store=place.schedules,
        sessions=cases.store,
        firing=cases.firing,
        log=log,
    )
    return SideJobs((scheduling, _deliveries(place, cases)), clock, cluster.promises)


def _deliveries(place: Place, cases: Cases) -> Deliveries:
    composer = Composer(
        sessions=cases.store,
        journal=cast("JournalStore", place.connection),
        keyring=cases.keyring,
        catalog=cases.creation.catalog,
        mask=lambda data, _hidden: data,
    )
    return Deliveries(
        store=place.webhooks,
        composer=composer,
        courier=cases.courier,
        clock=place.clock,
        hold_s=HOLD_S,
    )


@dataclass(frozen=True)
class _Asking:
    """The sessions as an audience sees them: what it asks for is looked at."""

    sessions: Sessions
    promises: Promises
    process: Process

    async def ask(self, tenant: str, session_id: str, verb: Verb) -> SessionRow | None:
        self.promises.cancels(session_id, self.process)
        return await self.sessions.ask(tenant, session_id, verb)


def audience_of(place: Place, sessions: Sessions) -> Audience:
    """Return the audience of an API."""
    asking = _Asking(sessions, place.cluster.promises, place.process)
    return Audience(
        sessions=cast("Sessions", asking),
        hub=place.hub,
        clock=place.clock,
        draining=place.cluster.ending,
    )
