"""What is said from outside to be a call's result, within the bounds of what tools return.

Whoever says it (the caller's own tool, a person who verifies, a fork), it goes into the journal and
into each later request to the model, as any result does.
"""

from dataclasses import dataclass

from app.core.canonical import Json, as_text, digest
from app.core.context import fault_text
from app.core.events import ModelRef
from app.core.faults import Fault, FaultKind
from app.core.toolbox import MAX_CHARS, ToolSpec
from app.runtime.execution.perform import weigh
from app.runtime.ports.models import Tokens
from app.runtime.ports.tools import Presenter


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A result as it is kept; `content` is what the model reads, where that is less."""

    output: Json
    content: str | None
    tokens: int
    digest: str
    empty: bool
    notable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds results. One for the whole process."""

    present: Presenter
    tokens: Tokens

    async def stated(self, output: Json, spec: ToolSpec | None, model: ModelRef) -> Stated:
        """Return a result within the bounds of its tool; of one that is gone, the usual ones."""
        reply = self.present(output, most_chars(spec))
        text = as_text(reply.output) if reply.content is None else reply.content
        empty, notable = weigh(reply.output, text)
        return Stated(
            output=reply.output,
            content=reply.content,
            tokens=await self.tokens.count(text, model.encoding),
            digest=digest(reply.output),
            empty=empty,
            notable=notable,
        )

    async def failed(self, error: str, spec: ToolSpec | None, model: ModelRef) -> tuple[str, int]:
        """Return what went wrong, within the same bounds, and the size of what the model reads."""
        text = str(self.present(error, most_chars(spec)).content or error)
        told = fault_text(Fault.of(FaultKind.INTERNAL, text))
        return text, await self.tokens.count(told, model.encoding)


def most_chars(spec: ToolSpec | None) -> int:
    """Return how many characters of a tool's result the model reads."""
    return MAX_CHARS if spec is None else spec.max_chars
