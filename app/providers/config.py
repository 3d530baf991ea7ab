"""What is configured about a model: where it is, what it costs, and how its endpoint differs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.canonical import Json
from app.core.events import ModelRef

DEFAULT_KEY_NAME: Final = "SUREFOOT_LLM_API_KEY"
DEFAULT_WINDOW: Final = 128_000
DEFAULT_ENCODING: Final = "o200k_base"


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens; None is unknown, which is not the same as free."""

    input: float | None = None
    cached: float | None = None
    output: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where an endpoint departs from OpenAI's own rules.

    `content_null`: a turn of tool calls only has `content: null`, else "" (servers refuse one or
    the other). `replay_reasoning`: reasoning goes back with the tool calls it led to. `text_calls`:
    tool calls written into the text are read. `think_open`: the chat template opens the thinking
    itself, so that the text begins inside it.
    """

    content_null: bool = True
    replay_reasoning: bool = False
    text_calls: bool = False
    think_open: bool = False


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model. `key_name` is the setting which an operator has to mend when the key is refused.

    `parameters` are further fields of every request, such as `temperature`.
    """

    name: str
    base_url: str
    api_key: str = field(default="", repr=False)
    key_name: str = DEFAULT_KEY_NAME
    context_window: int = DEFAULT_WINDOW
    encoding: str = DEFAULT_ENCODING
    prices: Prices = Prices()
    profile: Profile = Profile()
    parameters: Mapping[str, Json] = field(default_factory=dict)

    @property
    def ref(self) -> ModelRef:
        """Return what the core knows of it."""
        return ModelRef(
            self.name,
            self.context_window,
            self.encoding,
            self.prices.input,
            self.prices.cached,
            self.prices.output,
        )
