"""What happens by the clock: schedules that fire, and what leaves when its time is over."""

from typing import Final

from app.bootstrap.parts import Parts
from app.runtime.firing import Firing, Scheduling
from app.runtime.jobs import SideJob
from app.runtime.retention import Keeping, Retention
from app.storage.retention import PostgresRetention
from app.storage.schedules import PostgresSchedules
from app.storage.sessions import PostgresSessions

DAY_S: Final = 86_400.0


def timed(parts: Parts) -> tuple[SideJob, ...]:
    """Return the side jobs of a worker process that go by the clock."""
    settings, log = parts.settings, parts.observer.log
    days = settings.retention_days
    return (
        Scheduling(
            keyring=parts.keyring,
            store=PostgresSchedules(parts.engine),
            sessions=PostgresSessions(parts.engine),
            firing=Firing(creation=parts.creation(), sessions=parts.sessions()),
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
