"""Wiring: settings become adapters, adapters become services, on one `AsyncExitStack`.

Two lifetimes only: what is made here lives as long as the process; the rest lives for a request
or a claim. No other module knows more than one room of the edges.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from starlette.types import ASGIApp

from app.api.app import create_app
from app.api.deps import ApiServices, ParsedTool
from app.core.canonical import Json
from app.core.ids import mint
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.prompts.catalog import PackagedPrompts
from app.providers.config import ModelConfig
from app.providers.models_file import read_models_file
from app.providers.registry import Models
from app.providers.tokens import TiktokenCounter
from app.runtime.calls import AnswerReader
from app.runtime.catalog import Catalog
from app.runtime.clock import SystemClock
from app.runtime.creation import Creation
from app.runtime.driver import Desk
from app.runtime.follow import Follower
from app.runtime.lease import Lease
from app.runtime.perform import Performer
from app.runtime.recovery import Recovery
from app.runtime.sessions import Sessions
from app.runtime.worker import Worker, WorkerOptions
from app.runtime.writer import JournalWriter
from app.settings import Settings
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from app.storage.migrate import schema_current
from app.storage.sessions import PostgresSessions
from app.storage.tools import PostgresTools
from app.storage.workers import PostgresWorkers
from app.telemetry.observer import TelemetryObserver
from app.tools.builtin import BUILTINS
from app.tools.runner import ToolRunner
from app.tools.validation import SchemaReader

Role = Literal["all", "api", "worker"]
SCHEMA_POLL_S: Final = 0.5
