"""Small adapters between rooms that do not know each other."""

from dataclasses import dataclass
from typing import Literal

from app.api.deps import ParsedTool
from app.core.events import PromptRef
from app.live.link import Link
from app.prompts.catalog import PackagedPrompts
from app.runtime.errors import LiveUnavailable, StoreRefused, StoreUnavailable
from app.runtime.ports.models import Tokens
from app.runtime.refusals import FieldFault, Invalid, NotSupported
from app.storage.engine import Engine
from app.storage.migrate import schema_current
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
class Lack:
    """Why no session can run on a database yet: which check fails, and that in words."""

    check: Literal["database", "schema"]
    detail: str


async def schema_lack(engine: Engine) -> Lack | None:
    """Return what is missing, or None."""
    try:
        current = await schema_current(engine)
    except (StoreUnavailable, StoreRefused) as error:  # a wrong password is mended outside
        detail = f"the database at SUREFOOT_DATABASE_URL cannot be reached: {error}"
        return Lack("database", detail)
    if current:
        return None
    return Lack("schema", "the database lacks this release's schema: run `surefoot migrate`")


async def redis_answers(link: Link) -> bool:
    """Return whether Redis answers now; just after a failure it is not asked again."""
    if link.broken:
        return False
    try:
        await link.run([("PING",)])
    except LiveUnavailable:
        return False
    return True
