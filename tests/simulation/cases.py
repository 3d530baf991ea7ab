"""The use cases of one process, over what it has of Postgres, Redis and the world outside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from app.runtime.past import Past
from app.runtime.ports.journal import JournalStore
from app.runtime.ports.live import Hub
from app.runtime.ports.sessions import SessionStore
from app.runtime.ports.workers import WorkerStore
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.answers import Answers
from app.runtime.sessions.approvals import Approvals
from app.runtime.sessions.creation import Creation
from app.runtime.sessions.forks import Forks
from app.runtime.sessions.results import Bounds
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.deliveries import ping
from app.runtime.side.firing import Firing
from app.runtime.side.schedule_records import ScheduleStore
from app.runtime.side.schedules import Schedules
from app.runtime.side.webhook_records import WebhookStore
from app.runtime.side.webhooks import Courier, Webhooks
from app.runtime.streams.follow import Follower
from tests.fakes.small import OnePrompt, QuarterTokens, as_it_is
from tests.fakes.webhooks import readable
from tests.simulation.endpoints import HooksPort
from tests.simulation.loop import Process
from tests.simulation.outside import Arguments, ModelsPort
from tests.simulation.small import PlainKeyring, SimClock
from tests.simulation.tables import ScheduleTable, Table

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

MOST_QUEUED = 10_000
PING_S = 3.0
LEASE_S = 4.0


@dataclass(eq=False, kw_only=True)
class Cases:
    """What can be asked of a process."""

    store: SessionStore
    keyring: PlainKeyring
    creation: Creation
    sessions: Sessions
    follower: Follower
    answers: Answers
    approvals: Approvals
    forks: Forks
    firing: Firing
    schedules: Schedules
    webhooks: Webhooks
    courier: Courier


@dataclass(frozen=True)
class Place:
    """Where use cases are made: a process, and what it has of everything."""

    cluster: "Cluster"
    process: Process
    clock: SimClock
    connection: object
    hub: Hub

    @property
    def schedules(self) -> ScheduleStore:
        """Return the table of schedules."""
        cluster = self.cluster
        table = ScheduleTable(cluster.postgres, "schedules", cluster.schedules, cluster.store)
        return cast("ScheduleStore", cluster.build.schedules(table, cluster, self.process))

    @property
    def webhooks(self) -> WebhookStore:
        """Return the table of endpoints and deliveries."""
        cluster = self.cluster
        table = Table(cluster.postgres, "webhooks", cluster.hooks)
        return cast("WebhookStore", cluster.build.webhooks(table, cluster, self.process))


def use_cases(place: Place) -> Cases:
    """Return the use cases of a process, as the service wires them."""
    cluster, clock = place.cluster, place.clock
    store = cast("SessionStore", place.connection)
    creation, sessions = _of_sessions(place)
    past = Past(clock=clock, codec=cluster.codec, journal=cast("JournalStore", place.connection))
    firing = Firing(creation=creation, sessions=sessions)
    poster = HooksPort(cluster.endpoints, place.process)
    courier = Courier(poster=poster, sign=readable, keyring=cluster.keyring, clock=clock)
    return Cases(
        store=store,
        keyring=cluster.keyring,
        creation=creation,
        sessions=sessions,
        follower=sessions.follower,
        answers=Answers(
            clock=clock,
            sessions=sessions,
            past=past,
            catalog=creation.catalog,
            bounds=Bounds(present=as_it_is, tokens=QuarterTokens()),
        ),
        approvals=Approvals(
            clock=clock,
            sessions=sessions,
            store=store,
            catalog=creation.catalog,
            arguments=Arguments(),
            tokens=QuarterTokens(),
            past=past,
        ),
        forks=Forks(
            clock=clock,
            sessions=sessions,
            creation=creation,
            prompts=OnePrompt(),
            tokens=QuarterTokens(),
            past=past,
            bounds=Bounds(present=as_it_is, tokens=QuarterTokens()),
            sample=lambda _trace: True,
        ),
        firing=firing,
        schedules=Schedules(
            clock=clock,
            keyring=cluster.keyring,
            store=place.schedules,
            sessions=store,
            firing=firing,
        ),
        webhooks=Webhooks(store=place.webhooks, courier=courier, ping=ping),
        courier=courier,
    )


def _of_sessions(place: Place) -> tuple[Creation, Sessions]:
    cluster, clock, hub = place.cluster, place.clock, place.hub
    store, workers = cast("SessionStore", place.connection), cast("WorkerStore", place.connection)
    models = ModelsPort(cluster.outside, place.process)
    journal = cast("JournalStore", place.connection)
    follower = cluster.build.follower(journal=journal, hub=hub, clock=clock, ping_s=PING_S)
    admission = Admission(workers=workers, clock=clock, most=MOST_QUEUED)
    creation = Creation(
        clock=clock,
        codec=cluster.codec,
        keyring=cluster.keyring,
        store=store,
        hub=hub,
        models=models,
        catalog=cluster.catalog(clock),
        prompts=OnePrompt(),
        tokens=QuarterTokens(),
        limits=cluster.limits,
        admission=admission,
        sample=lambda _trace: True,
        trace_url=lambda _trace: None,
    )
    sessions = Sessions(
        clock=clock,
        keyring=cluster.keyring,
        store=store,
        workers=workers,
        hub=hub,
        follower=follower,
        models=models,
        tokens=QuarterTokens(),
        lease_s=LEASE_S,
        admission=admission,
        trace_url=lambda _trace: None,
    )
    return creation, sessions
