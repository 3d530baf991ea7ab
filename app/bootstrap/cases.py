"""The use cases over the adapters, and the HTTP application over the use cases."""

from dataclasses import dataclass
from functools import cached_property

from app import __version__
from app.api.app import Application, create_app
from app.api.deps import ApiServices, Auth
from app.api.health import Probes
from app.api.streams.places import Places
from app.bootstrap.edges import parse_tool
from app.bootstrap.parts import Parts
from app.runtime.explaining.checkup import Checkup
from app.runtime.explaining.inquiry import Inquiry
from app.runtime.past import Past
from app.runtime.sessions.admission import Admission
from app.runtime.sessions.answers import Answers
from app.runtime.sessions.approvals import Approvals
from app.runtime.sessions.audience import Audience
from app.runtime.sessions.creation import Creation
from app.runtime.sessions.erasing import Erasing
from app.runtime.sessions.forks import Forks
from app.runtime.sessions.results import Bounds
from app.runtime.sessions.verbs import Sessions
from app.runtime.side.firing import Firing
from app.runtime.side.schedules import Schedules
from app.storage.audit import PostgresAudit
from app.storage.chain import Chains
from app.storage.journal import PostgresJournal
from app.storage.schedules import PostgresSchedules
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from app.tools.definition import describe
from app.tools.present import present


@dataclass(frozen=True)
class Cases:
    """What can be done, each use case made when it is first asked for."""

    parts: Parts

    @cached_property
    def store(self) -> PostgresSessions:
        """Return the sessions in Postgres."""
        return PostgresSessions(self.parts.engine)

    @cached_property
    def journal(self) -> PostgresJournal:
        """Return the journal in Postgres, for reading."""
        return PostgresJournal(self.parts.engine)

    @cached_property
    def creation(self) -> Creation:
        """Return the use case that creates sessions."""
        parts = self.parts
        return Creation(
            clock=parts.clock,
            codec=parts.codec,
            keyring=parts.keyring,
            store=self.store,
            hub=parts.hub,
            models=parts.models,
            catalog=parts.catalog,
            prompts=parts.prompts,
            tokens=parts.tokens,
            limits=parts.settings.limits,
            admission=self.admission,
            sample=parts.observer.sample,
            trace_url=parts.observer.trace_url,
        )

    @cached_property
    def sessions(self) -> Sessions:
        """Return the use cases of sessions that exist."""
        parts = self.parts
        return Sessions(
            clock=parts.clock,
            keyring=parts.keyring,
            store=self.store,
            workers=self.workers,
            hub=parts.hub,
            follower=parts.follower,
            models=parts.models,
            tokens=parts.tokens,
            lease_s=parts.settings.lease_s,
            admission=self.admission,
            trace_url=parts.observer.trace_url,
        )

    @cached_property
    def past(self) -> Past:
        """Return what reads journals back."""
        parts = self.parts
        return Past(clock=parts.clock, codec=parts.codec, journal=self.journal)

    @cached_property
    def bounds(self) -> Bounds:
        """Return what bounds results that are told from outside."""
        return Bounds(present=present, tokens=self.parts.tokens)

    @cached_property
    def answers(self) -> Answers:
        """Return the use cases of verifications and client tools."""
        parts = self.parts
        return Answers(
            clock=parts.clock,
            sessions=self.sessions,
            past=self.past,
            catalog=parts.catalog,
            bounds=self.bounds,
        )

    @cached_property
    def approvals(self) -> Approvals:
        """Return the use cases of approvals."""
        parts = self.parts
        return Approvals(
            clock=parts.clock,
            sessions=self.sessions,
            store=self.store,
            catalog=parts.catalog,
            arguments=parts.arguments,
            tokens=parts.tokens,
            past=self.past,
        )

    @cached_property
    def forks(self) -> Forks:
        """Return the use case that forks sessions."""
        parts = self.parts
        return Forks(
            clock=parts.clock,
            sessions=self.sessions,
            creation=self.creation,
            prompts=parts.prompts,
            tokens=parts.tokens,
            past=self.past,
            bounds=self.bounds,
            sample=parts.observer.sample,
        )

    @cached_property
    def erasing(self) -> Erasing:
        """Return the use case that erases the content of sessions."""
        return Erasing(clock=self.parts.clock, sessions=self.sessions)

    @cached_property
    def schedule_store(self) -> PostgresSchedules:
        """Return the schedules in Postgres."""
        return PostgresSchedules(self.parts.engine)

    @cached_property
    def firing(self) -> Firing:
        """Return what does that which a schedule says."""
        return Firing(creation=self.creation, sessions=self.sessions)

    @cached_property
    def schedules(self) -> Schedules:
        """Return the use cases of schedules."""
        parts = self.parts
        return Schedules(
            clock=parts.clock,
            keyring=parts.keyring,
            store=self.schedule_store,
            sessions=self.store,
            firing=self.firing,
        )

    @cached_property
    def inquiry(self) -> Inquiry:
        """Return the use cases that explain a session."""
        parts = self.parts
        checkup = Checkup(
            audit=PostgresAudit(parts.engine),
            chains=Chains(parts.keyring, parts.codec),
            journal=self.journal,
        )
        return Inquiry(
            clock=parts.clock,
            codec=parts.codec,
            keyring=parts.keyring,
            store=self.store,
            workers=self.workers,
            journal=self.journal,
            prompts=parts.prompts,
            checkup=checkup,
            version=__version__,
        )

    @cached_property
    def workers(self) -> PostgresWorkers:
        """Return the workers in Postgres."""
        return PostgresWorkers(self.parts.engine)

    @cached_property
    def admission(self) -> Admission:
        """Return what keeps the queue bounded."""
        parts = self.parts
        return Admission(workers=self.workers, clock=parts.clock, most=parts.settings.max_queued)

    def api(self, probes: Probes) -> "Api":
        """Return the HTTP application of this process, and what must run beside it."""
        parts, settings, draining = self.parts, self.parts.settings, probes.draining
        audience = Audience(
            sessions=self.sessions, hub=parts.hub, clock=parts.clock, draining=draining
        )
        key = settings.admin_key
        services = ApiServices(
            creation=self.creation,
            sessions=self.sessions,
            answers=self.answers,
            approvals=self.approvals,
            forks=self.forks,
            erasing=self.erasing,
            schedules=self.schedules,
            schedule_store=self.schedule_store,
            follower=parts.follower,
            inquiry=self.inquiry,
            store=self.store,
            journal=self.journal,
            keyring=parts.keyring,
            clock=parts.clock,
            catalog=parts.catalog,
            tool_store=PostgresTools(parts.engine),
            tool_port=parts.tools,
            argument_reader=parts.arguments,
            parse_tool=parse_tool,
            describe_tool=describe,
            models=parts.models,
            webhooks=parts.side.webhooks(),
            observer=parts.observer,
            ready=probes.ready,
            metrics=probes.metrics,
            audience=audience,
            auth=Auth(settings.auth_on, None if key is None else key.get_secret_value()),
            version=__version__,
            body_limit=settings.body_limit,
            draining=draining,
            places=Places(settings.max_streams),
        )
        return Api(create_app(services), self.admission, audience)


@dataclass(frozen=True, slots=True)
class Api:
    """The HTTP application, and what must run beside it."""

    app: Application
    admission: Admission
    audience: Audience
