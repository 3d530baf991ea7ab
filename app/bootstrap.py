"""Wiring: settings become adapters, adapters become services, on one `AsyncExitStack`.

Two lifetimes only: what is made here lives as long as the process; the rest lives for a request
or a claim. No other module knows more than one room of the edges.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from app import __version__
from app.api.app import Application, create_app
from app.api.deps import ApiServices, Auth, ParsedTool
from app.core.events import PromptRef
from app.core.ids import mint
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.live.link import Link
from app.prompts.catalog import PackagedPrompts
from app.providers.config import ModelConfig
from app.providers.models_file import load_models
from app.providers.registry import Models
from app.providers.tokens import TokenCounter
from app.runtime.calls import AnswerReader
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.creation import Creation
from app.runtime.driver import Desk
from app.runtime.errors import StoreUnavailable
from app.runtime.follow import Follower
from app.runtime.lease import Lease
from app.runtime.perform import Performer
from app.runtime.ports import Tokens
from app.runtime.recovery import Recovery
from app.runtime.refusals import FieldFault, Invalid, NotSupported
from app.runtime.sessions import Sessions
from app.runtime.worker import Worker, WorkerOptions
from app.runtime.writer import JournalWriter
from app.settings import Loaded, Settings, SettingsError, load
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from app.storage.listen import Listener, notify
from app.storage.migrate import schema_current
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from app.telemetry.logs import LogConfig, route_stdlib
from app.telemetry.observer import TelemetryObserver
from app.telemetry.opening import TelemetryConfig, open_observer
from app.tools.builtin import BUILTINS, Builtins
from app.tools.definition import describe, parse
from app.tools.egress import EgressGuard
from app.tools.errors import DefinitionError, NotSupportedYetError
from app.tools.http import HttpTools
from app.tools.runner import Tools
from app.tools.validation import Arguments, provider_schema

Role = Literal["all", "api", "worker"]
SCHEMA_POLL_S: Final = 0.25
GC_YOUNG: Final = 20_000
GC_OLDER: Final = 20
SECRET_PREFIX: Final = "SUREFOOT_SECRET_"  # noqa: S105 - the name of settings, not a secret


def settings_for(purpose: Literal["serve", "migrate", "dev"]) -> Loaded:
    """Read the settings.

    Raises:
        SettingsError: when they are wrong, or lack what this purpose needs.

    """
    loaded = load()
    faults = loaded.serve_faults() if purpose == "serve" else []
    if purpose == "migrate" and loaded.settings.database_url is None:
        faults = ["`migrate` needs SUREFOOT_DATABASE_URL"]
    if faults:
        raise SettingsError(faults)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process put together. `background` must run for as long as anything else does."""

    settings: Settings
    observer: TelemetryObserver
    app: Application | None
    worker: Worker | None
    draining: asyncio.Event
    _engine: Engine
    _hub: RedisHub
    _hot: RedisHotStates
    _follower: Follower
    _listener: Listener

    async def background(self) -> None:
        """Keep the live hub, the readers and the fallback for nudges running."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._warn_of_eviction())
            group.create_task(self._hub.run())
            group.create_task(self._follower.run())
            group.create_task(self._listener.run())

    async def _warn_of_eviction(self) -> None:
        """Say once that this Redis drops hot states at will, where it does."""
        warning = await self._hot.warning()
        if warning is not None:
            self.observer.log("redis.evicts", level="warning", detail=warning)

    async def wait_for_schema(self) -> None:
        """Return when the database has this release's schema."""
        told = False
        while not await _schema_is_there(self._engine):
            if not told:
                self.observer.log("schema.awaited", detail="run `surefoot migrate`")
                told = True
            await asyncio.sleep(SCHEMA_POLL_S)


@asynccontextmanager
async def open_service(loaded: Loaded, role: Role) -> AsyncIterator[Service]:
    """Put a process together and take it apart again at the end."""
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        parts = await _open_parts(settings, stack)
        for warning in loaded.warnings:
            parts.observer.log("settings.warning", level="warning", detail=warning)
        draining = asyncio.Event()
        _spare_the_collector()
        worker = None if role == "api" else parts.worker()
        yield Service(
            settings=settings,
            observer=parts.observer,
            app=None if role == "worker" else parts.api(worker, draining),
            worker=worker,
            draining=draining,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
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
    prompts: "_Prompts"
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
            reader=AnswerReader(self.arguments, self.tokens),
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
        key = settings.admin_key
        services = ApiServices(
            creation=creation,
            sessions=sessions,
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
            ready=_Readiness(self.engine, self.link, worker, draining).report,
            metrics=self.observer.metrics.render,
            auth=Auth(settings.auth_on, None if key is None else key.get_secret_value()),
            version=__version__,
            body_limit=settings.body_limit,
            draining=draining,
        )
        return create_app(services)


async def _open_parts(settings: Settings, stack: AsyncExitStack) -> _Parts:
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
            secrets=_tool_secrets(os.environ),
            clock=clock,
            version=__version__,
        ),
        builtins=Builtins(clock=clock),
    )
    stack.push_async_callback(tools.aclose)
    listen_url = settings.listen_database_url or settings.database_url
    return _Parts(
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
        prompts=_Prompts(PackagedPrompts(), tokens),
        tools=tools,
        arguments=Arguments(),
        catalog=Catalog(store=PostgresTools(engine), builtins=BUILTINS, tokens=tokens, clock=clock),
        follower=Follower(journal=journal, hub=hub, clock=clock, ping_s=settings.stream_ping_s),
    )


def _open_observer(
    settings: Settings, clock: SystemClock, stack: AsyncExitStack
) -> TelemetryObserver:
    secrets = (*settings.secrets(), *_tool_secrets(os.environ).values())
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
        configs.extend(load_models(settings.models_file, os.environ))
    return tuple(configs)


def _tool_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets that tools may name, by their name in lower case."""
    return {
        name.removeprefix(SECRET_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(SECRET_PREFIX) and value
    }


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Packaged prompts, counted in the tokens of the model that reads them."""

    packaged: PackagedPrompts
    tokens: Tokens

    def text(self, name: str, version: int) -> str:
        """Return the text of a version."""
        return self.packaged.text(name, version)

    async def ref(self, name: str, encoding: str) -> PromptRef:
        """Return the version which new sessions take."""
        text = self.packaged.get(name).text
        return self.packaged.ref(name, await self.tokens.count(text, encoding))


def parse_tool(body: dict[str, object], *, version: int, name: str | None) -> ParsedTool:
    """Read a registration for the API, in the use cases' own words for what is wrong."""
    try:
        found = parse(body, version=version, name=name)
    except DefinitionError as error:
        faults = [FieldFault(problem.pointer, problem.message) for problem in error.errors]
        raise Invalid("The tool cannot be registered like this.", *faults) from error
    except NotSupportedYetError as error:
        raise NotSupported(str(error)) from error
    return ParsedTool(found.spec, found.lint.score, found.lint.warnings)


@dataclass(frozen=True, slots=True)
class _Readiness:
    """What `/readyz` tells."""

    engine: Engine
    link: Link
    worker: Worker | None
    draining: asyncio.Event

    async def report(self) -> Mapping[str, object]:
        """Return whether requests should come here, and what is missing."""
        checks: dict[str, object] = {
            "draining": self.draining.is_set(),
            "schema": await _schema_is_there(self.engine),
            "redis": not self.link.broken,
        }
        ready = bool(checks["schema"]) and not self.draining.is_set()
        if self.worker is not None:
            checks["worker"] = self.worker.healthy
            ready = ready and self.worker.healthy
        return {"ready": ready, **checks}


async def _schema_is_there(engine: Engine) -> bool:
    try:
        return await schema_current(engine)
    except StoreUnavailable:
        return False
