"""Adapters from settings, and from adapters the services of each kind of process."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass

from app import __version__
from app.api.app import Application
from app.api.health import HealthApp, Probes
from app.bootstrap.edges import CountedPrompts
from app.bootstrap.readiness import LoopLag, Readiness, Scraped
from app.bootstrap.side import Masking, Side
from app.core.ids import mint
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.live.link import Link
from app.prompts.catalog import PackagedPrompts
from app.providers.config import ModelConfig
from app.providers.models_file import ModelsFileError, load_models
from app.providers.registry import Models
from app.providers.tokens import TokenCounter
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.execution.calls import AnswerReader
from app.runtime.execution.desk import Desk
from app.runtime.execution.lease import Lease
from app.runtime.execution.perform import Performer
from app.runtime.execution.recovery import Recovery
from app.runtime.execution.worker import RENEWALS_PER_LEASE, Worker, WorkerOptions
from app.runtime.execution.writer import JournalWriter
from app.runtime.explaining.auditor import Auditor
from app.runtime.streams.follow import Follower
from app.settings import Settings, SettingsError
from app.storage.audit import PostgresAudit
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from app.storage.listen import Listener, notify
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from app.telemetry.logs import LogConfig, route_stdlib
from app.telemetry.masking import Masker
from app.telemetry.observer import TelemetryObserver
from app.telemetry.opening import TelemetryConfig, open_observer
from app.tools.builtin import BUILTINS, PURE, Builtins
from app.tools.egress import EgressGuard
from app.tools.http import HttpTools
from app.tools.outgoing import OutgoingPosts
from app.tools.runner import Tools
from app.tools.templates import secrets_from
from app.tools.validation import Arguments, provider_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Adapters and the services both processes share."""

    settings: Settings
    clock: SystemClock
    codec: JsonCodec
    keyring: MasterKeys
    engine: Engine
    link: Link
    hub: RedisHub
    hot: RedisHotStates
    listener: Listener
    observer: TelemetryObserver
    models: Models
    tokens: TokenCounter
    prompts: CountedPrompts
    tools: Tools
    arguments: Arguments
    catalog: Catalog
    follower: Follower
    side: Side

    def worker(self) -> Worker:
        """Return the worker of this process."""
        settings, clock = self.settings, self.clock
        journal = PostgresJournal(self.engine)
        lease = Lease(clock=clock, lease_s=settings.lease_s)
        performer = Performer(
            clock=clock,
            models=self.models,
            tools=self.tools,
            catalog=self.catalog,
            prompts=self.prompts,
            tokens=self.tokens,
            reader=AnswerReader(self.arguments, self.tokens, settings.approval_ttl_s),
            observer=self.observer,
            sample=self.observer.sample,
            pure=PURE,
        )
        desk = Desk(
            worker=mint("wrk", at_us=clock.now_us(), entropy=clock.entropy(10)),
            clock=clock,
            lease=lease,
            writer=JournalWriter(store=journal, clock=clock),
            journal=journal,
            sessions=PostgresSessions(self.engine),
            hub=self.hub,
            hot=self.hot,
            performer=performer,
            observer=self.observer,
        )
        recovery = Recovery(
            codec=self.codec,
            keyring=self.keyring,
            journal=journal,
            hot=self.hot,
            observer=self.observer,
        )
        return Worker(
            desk=desk,
            workers=PostgresWorkers(self.engine),
            recovery=recovery,
            options=WorkerOptions(slots=settings.worker_slots, drain_s=settings.drain_s),
        )

    def auditor(self) -> Auditor:
        """Return what looks at the invariants all the time."""
        return Auditor(
            clock=self.clock,
            audit=PostgresAudit(self.engine),
            observer=self.observer,
            every_s=self.settings.audit_s,
            tell=self.observer.metrics.violations,
        )

    def probes(self, worker: Worker | None, draining: asyncio.Event) -> "OwnProbes":
        """Return what this process tells of itself."""
        lag = LoopLag(clock=self.clock)
        readiness = Readiness(
            engine=self.engine,
            link=self.link,
            worker=worker,
            draining=draining,
            lag=lag,
            most_lag_s=self.settings.lease_s / RENEWALS_PER_LEASE,
        )
        scraped = Scraped(metrics=self.observer.metrics, link=self.link, worker=worker, lag=lag)
        probes = Probes(
            ready=readiness.report, metrics=scraped.render, version=__version__, draining=draining
        )
        return OwnProbes(readiness, probes)


@dataclass(frozen=True, slots=True)
class OwnProbes:
    """What a process tells of itself, and the watch that must run for it."""

    readiness: Readiness
    probes: Probes

    @property
    def app(self) -> Application:
        """Return the application that serves nothing else."""
        return HealthApp(self.probes)


async def open_parts(settings: Settings, stack: AsyncExitStack) -> Parts:
    """Open every adapter, each closed again by the stack."""
    clock = SystemClock()
    observer = _open_observer(settings, clock, stack)
    engine = await stack.enter_async_context(
        Engine(
            _secret(settings.database_url),
            lease_s=settings.lease_s,
            size=settings.pool_size,
            pooled=settings.pooler == "transaction",
        )
    )
    link = await stack.enter_async_context(Link(_secret(settings.redis_url), clock=clock))

    async def fallback(session_id: str) -> None:
        await notify(engine, session_id)

    hub = RedisHub(link, nudge_fallback=fallback)
    journal = PostgresJournal(engine)
    tokens = TokenCounter()
    stack.callback(tokens.close)
    models = Models(_models(settings), clock=clock, schema_of=provider_schema, log=observer.log)
    stack.push_async_callback(models.close)
    await tokens.warm({ref.encoding for ref in models.names()})
    guard = EgressGuard(allow=settings.egress_allow)
    tools = _open_tools(clock, guard, stack)
    catalog = Catalog(store=PostgresTools(engine), builtins=BUILTINS, tokens=tokens, clock=clock)
    keyring = MasterKeys(parse_keys(_secret(settings.encryption_keys)))
    listen_dsn = _secret(settings.listen_database_url or settings.database_url)
    side = Side(
        settings=settings,
        engine=engine,
        clock=clock,
        keyring=keyring,
        catalog=catalog,
        posts=_open_posts(settings, clock, guard, stack),
        masking=Masking(Masker(_secrets(settings))),
        listen_dsn=listen_dsn,
        log=observer.log,
    )
    return Parts(
        settings=settings,
        clock=clock,
        codec=JsonCodec(),
        keyring=keyring,
        engine=engine,
        link=link,
        hub=hub,
        hot=RedisHotStates(link),
        listener=Listener(listen_dsn, hub.nudged, clock=clock),
        observer=observer,
        models=models,
        tokens=tokens,
        prompts=CountedPrompts(PackagedPrompts(), tokens),
        tools=tools,
        arguments=Arguments(),
        catalog=catalog,
        follower=Follower(journal=journal, hub=hub, clock=clock, ping_s=settings.stream_ping_s),
        side=side,
    )


def _open_tools(clock: SystemClock, guard: EgressGuard, stack: AsyncExitStack) -> Tools:
    secrets = secrets_from(os.environ)
    http = HttpTools(guard=guard, secrets=secrets, clock=clock, version=__version__)
    tools = Tools(http=http, builtins=Builtins(clock=clock))
    stack.push_async_callback(tools.aclose)
    return tools


def _open_posts(
    settings: Settings, clock: SystemClock, guard: EgressGuard, stack: AsyncExitStack
) -> OutgoingPosts:
    timeout_s = settings.webhook_timeout_s
    posts = OutgoingPosts(guard=guard, clock=clock, version=__version__, timeout_s=timeout_s)
    stack.push_async_callback(posts.aclose)
    return posts


def _open_observer(
    settings: Settings, clock: SystemClock, stack: AsyncExitStack
) -> TelemetryObserver:
    log = LogConfig(clock.now_us, settings.log_level, settings.log_format, _secrets(settings))
    route_stdlib(log, sys.stderr.buffer)
    config = TelemetryConfig(environ=os.environ, log=log, jaeger_url=settings.jaeger_url)
    observer = open_observer(config, sys.stderr.buffer)
    stack.push_async_callback(asyncio.to_thread, observer.close)
    return observer


def _secrets(settings: Settings) -> tuple[str, ...]:
    """Return every secret value that this process knows, for masks."""
    return (*settings.secrets(), *secrets_from(os.environ).values())


def _secret(value: object) -> str:
    """Return a setting that the process cannot do without; `serve` checked that it is there."""
    reveal = getattr(value, "get_secret_value", None)
    return str(reveal()) if reveal is not None else ""


def _models(settings: Settings) -> tuple[ModelConfig, ...]:
    configs: list[ModelConfig] = []
    if settings.llm_base_url is not None and settings.llm_model is not None:
        key = _secret(settings.llm_api_key)
        configs.append(ModelConfig(settings.llm_model, settings.llm_base_url, key))
    if settings.models_file is not None:
        try:
            configs.extend(load_models(settings.models_file, os.environ))
        except ModelsFileError as error:
            raise SettingsError([f"SUREFOOT_MODELS_FILE: {error}"]) from None
    return tuple(configs)
