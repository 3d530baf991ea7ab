"""Language models: what is asked of them and what they answer, their tokens and prompts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.core.events import ModelRef, PromptRef, Usage
from app.core.messages import Message
from app.core.toolbox import ToolSpec


@dataclass(frozen=True, slots=True)
class RawCall:
    """A tool call as the endpoint wrote it; `arguments` is text, whatever it was on the wire."""

    wire_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to an endpoint, provider-neutral. `deadline_s` bounds the whole attempt."""

    model: ModelRef
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    traceparent: str
    deadline_s: float
    offer_finish: bool = True


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer; `usage` None when the endpoint reported none.

    `dropped` are the optional fields which the endpoint refused while this answer was bought, and
    which it is not sent any more.
    """

    text: str
    reasoning: str | None
    calls: tuple[RawCall, ...]
    usage: Usage | None
    finish_reason: str
    model: str
    ttft_ms: float | None
    dropped: tuple[str, ...] = ()


class ModelPort(Protocol):
    """Language models by name."""

    def get(self, name: str | None) -> ModelRef | None:
        """Return a model's facts (None: the default model), or None when it is unknown."""

    def names(self) -> list[ModelRef]:
        """Return every model there is, the default first."""

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Buy one answer; text deltas go to the callback as they come.

        Raises:
            ModelFailure: with the fault, when this attempt gave no usable answer.

        """


class Tokens(Protocol):
    """Counts tokens with the model's own tokenizer, offline."""

    async def count(self, text: str, encoding: str) -> int:
        """Return the count; long texts are counted off the event loop."""


class Prompts(Protocol):
    """Prompt versions."""

    def text(self, name: str, version: int) -> str:
        """Return the text of a version."""


class PromptCatalog(Prompts, Protocol):
    """Prompt versions as a session pins them."""

    async def ref(self, name: str, encoding: str) -> PromptRef:
        """Return the version of a prompt which new sessions take."""
