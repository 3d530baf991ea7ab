"""Small adapters between rooms that do not know each other."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from app.api.deps import ParsedTool
from app.core.events import PromptRef
from app.live.link import Link
from app.prompts.catalog import PackagedPrompts
from app.runtime.errors import LiveUnavailable, StoreRefused, StoreUnavailable
from app.runtime.ports import Tokens
from app.runtime.refusals import FieldFault, Invalid, NotSupported
from app.runtime.worker import Worker
from app.storage.engine import Engine
from app.storage.migrate import schema_current
from app.telemetry.metrics import Metrics
from app.tools.definition import parse
from app.tools.errors import DefinitionError, NotSupportedYetError


@dataclass(frozen=True, slots=True)
class CountedPrompts:
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
        pointer = "/" + error.field.replace(".", "/")
        fault = FieldFault(pointer, "not supported yet; leave it out or give its default")
        raise NotSupported(str(error), fault) from error
    return ParsedTool(found.spec, found.lint.score, found.lint.warnings)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `/readyz` tells."""

    engine: Engine
    link: Link
    worker: Worker | None
    draining: asyncio.Event

    async def report(self) -> Mapping[str, object]:
        """Return whether requests should come here, and what is missing."""
        checks: dict[str, object] = {
            "draining": self.draining.is_set(),
            "schema": await schema_is_there(self.engine),
            "redis": await redis_answers(self.link),
        }
        ready = bool(checks["schema"]) and not self.draining.is_set()
        if self.worker is not None:
            checks["worker"] = self.worker.healthy
            ready = ready and self.worker.healthy
        return {"ready": ready, **checks}


@dataclass(frozen=True, slots=True)
class Scraped:
    """What `/metrics` tells: what was counted, and how the process is at that moment."""

    metrics: Metrics
    link: Link
    worker: Worker | None

    def render(self) -> bytes:
        """Return it in the text format of Prometheus."""
        self.metrics.redis_up(not self.link.broken)
        if self.worker is not None:
            self.metrics.loop_lag(self.worker.lag_s)
            self.metrics.sessions_owned(self.worker.owned)
        return self.metrics.render()


async def schema_is_there(engine: Engine) -> bool:
    """Return whether the database can be reached and has this release's schema."""
    return await schema_lacking(engine) is None


async def schema_lacking(engine: Engine) -> str | None:
    """Return why no session can run on this database yet; None when it can."""
    try:
        current = await schema_current(engine)
    except (StoreUnavailable, StoreRefused) as error:  # a wrong password is mended outside
        return f"the database at SUREFOOT_DATABASE_URL cannot be reached: {error}"
    return None if current else "the database lacks this release's schema: run `surefoot migrate`"


async def redis_answers(link: Link) -> bool:
    """Return whether Redis answered last; one that was never asked is asked now."""
    if not link.reached and not link.broken:
        with contextlib.suppress(LiveUnavailable):
            await link.run([("PING",)])
    return link.reached and not link.broken
