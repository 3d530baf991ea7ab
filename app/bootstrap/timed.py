"""What happens by the clock: schedules that fire, and what leaves when its time is over."""

from typing import Final

from app.bootstrap.cases import Cases
from app.runtime.side.firing import Scheduling
from app.runtime.side.jobs import SideJob
from app.runtime.side.retention import Keeping, Retention
from app.storage.retention import PostgresRetention

DAY_S: Final = 86_400.0


def timed(cases: Cases) -> tuple[SideJob, ...]:
    """Return the side jobs of a worker process that go by the clock."""
    parts = cases.parts
    settings, log = parts.settings, parts.observer.log
    days = settings.retention_days
    return (
        Scheduling(
            keyring=parts.keyring,
            store=cases.schedule_store,
            sessions=cases.store,
            firing=cases.firing,
            log=log,
        ),
        Retention(
            store=PostgresRetention(parts.engine),
            keeping=Keeping(
                sessions_s=None if days is None else days * DAY_S,
                answers_s=settings.idempotency_ttl_s,
            ),
            clock=parts.clock,
            log=log,
        ),
    )
