"""Adapters from settings, and from adapters the services of each kind of process."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass

from app import __version__
from app.api.app import Application, create_app
from app.api.deps import ApiServices, Auth
from app.bootstrap.edges import CountedPrompts, Readiness, Scraped, parse_tool
from app.core.ids import mint
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.live.link import Link
from app.prompts.catalog import PackagedPrompts
from app.providers.config import ModelConfig
from app.providers.models_file import ModelsFileError, load_models
from app.providers.registry import Models
from app.providers.tokens import TokenCounter
from app.runtime.answers import Answers
from app.runtime.approvals import Approvals
from app.runtime.calls import AnswerReader
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.creation import Creation
from app.runtime.driver import Desk
from app.runtime.follow import Follower
from app.runtime.forks import Forks
from app.runtime.lease import Lease
from app.runtime.past import Past
from app.runtime.perform import Performer
from app.runtime.recovery import Recovery
from app.runtime.sessions import Sessions
from app.runtime.worker import Worker, WorkerOptions
from app.runtime.writer import JournalWriter
from app.settings import Settings, SettingsError
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from app.storage.listen import Listener, notify
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from app.telemetry.logs import LogConfig, route_stdlib
from app.telemetry.observer import TelemetryObserver
from app.telemetry.opening import TelemetryConfig, open_observer
from app.tools.builtin import BUILTINS, Builtins
from app.tools.definition import describe
from app.tools.egress import EgressGuard
from app.tools.http import HttpTools
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

    def api(self, worker: Worker | None, draining: asyncio.Event) -> Application:
        """Return the HTTP application of this process."""
        settings = self.settings
        store = PostgresSessions(self.engine)
        creation = Creation(
            clock=self.clock,
            codec=self.codec,
            keyring=self.keyring,
            store=store,
            hub=self.hub,
            models=self.models,
            catalog=self.catalog,
            prompts=self.prompts,
            tokens=self.tokens,
            limits=settings.limits,
            sample=self.observer.sample,
            trace_url=self.observer.trace_url,
        )
        sessions = Sessions(
            clock=self.clock,
            keyring=self.keyring,
            store=store,
            workers=PostgresWorkers(self.engine),
            hub=self.hub,
            follower=self.follower,
            models=self.models,
            tokens=self.tokens,
            lease_s=settings.lease_s,
            trace_url=self.observer.trace_url,
        )
        past = Past(clock=self.clock, codec=self.codec, journal=PostgresJournal(self.engine))
        key = settings.admin_key
        services = ApiServices(
            creation=creation,
            sessions=sessions,
            answers=Answers(clock=self.clock, sessions=sessions, tokens=self.tokens, past=past),
            approvals=Approvals(
                clock=self.clock,
                sessions=sessions,
                store=store,
                catalog=self.catalog,
                arguments=self.arguments,
                tokens=self.tokens,
                past=past,
            ),
            forks=Forks(
                clock=self.clock,
                sessions=sessions,
                creation=creation,
                prompts=self.prompts,
                tokens=self.tokens,
                past=past,
                sample=self.observer.sample,
            ),
            follower=self.follower,
            store=store,
            journal=PostgresJournal(self.engine),
            keyring=self.keyring,
            clock=self.clock,
            catalog=self.catalog,
            tool_store=PostgresTools(self.engine),
            tool_port=self.tools,
            argument_reader=self.arguments,
            parse_tool=parse_tool,
            describe_tool=describe,
            models=self.models,
            observer=self.observer,
            ready=Readiness(self.engine, self.link, worker, draining).report,
            metrics=Scraped(self.observer.metrics, self.link, worker).render,
            auth=Auth(settings.auth_on, None if key is None else key.get_secret_value()),
            version=__version__,
            body_limit=settings.body_limit,
            draining=draining,
        )
        return create_app(services)


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
    tools = Tools(
        http=HttpTools(
            guard=EgressGuard(allow=settings.egress_allow),
            secrets=secrets_from(os.environ),
            clock=clock,
            version=__version__,
        ),
        builtins=Builtins(clock=clock),
    )
    stack.push_async_callback(tools.aclose)
    listen_url = settings.listen_database_url or settings.database_url
    return Parts(
        settings=settings,
        clock=clock,
        codec=JsonCodec(),
        keyring=MasterKeys(parse_keys(_secret(settings.encryption_keys))),
        engine=engine,
        link=link,
        hub=hub,
        hot=RedisHotStates(link),
        listener=Listener(_secret(listen_url), hub.nudged, clock=clock),
        observer=observer,
        models=models,
        tokens=tokens,
        prompts=CountedPrompts(PackagedPrompts(), tokens),
        tools=tools,
        arguments=Arguments(),
        catalog=Catalog(store=PostgresTools(engine), builtins=BUILTINS, tokens=tokens, clock=clock),
        follower=Follower(journal=journal, hub=hub, clock=clock, ping_s=settings.stream_ping_s),
    )


def _open_observer(
    settings: Settings, clock: SystemClock, stack: AsyncExitStack
) -> TelemetryObserver:
    secrets = (*settings.secrets(), *secrets_from(os.environ).values())
    log = LogConfig(clock.now_us, settings.log_level, settings.log_format, secrets)
    route_stdlib(log, sys.stderr.buffer)
    config = TelemetryConfig(environ=os.environ, log=log, jaeger_url=settings.jaeger_url)
    observer = open_observer(config, sys.stderr.buffer)
    stack.push_async_callback(asyncio.to_thread, observer.close)
    return observer


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
