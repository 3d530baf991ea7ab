"""One answer from its parts: pure, whatever way the endpoint chose to write it."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from app.core.canonical import Json
from app.core.events import Usage
from app.providers.calls import CallAssembler
from app.providers.config import Profile
from app.providers.failures import FailureReader, unavailable
from app.providers.text import clean, open_pair
from app.providers.textcalls import read_text_calls
from app.providers.thinking import ThinkSplitter
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply

_FINISH: Final = {
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
}
_CONTENT: Final = ("content", "tool_calls", "reasoning_content", "reasoning")
_MOST_TOKENS: Final = 10**12
MOST_CHARS: Final = 1_000_000
"""Text and reasoning of one answer. Every reader of the trace is sent all of it in one event."""

_CUT: Final = "The connection of the model endpoint ended before the answer was complete."


@dataclass(frozen=True, slots=True)
class Expected:
    """What an answer is read against: the names offered, the call ids used, the profile."""

    known: Collection[str]
    taken: Collection[str]
    profile: Profile


class Assembler:
    """Takes the chunks of a stream, or one whole answer, and gives the reply.

    `on_text` gets the visible text as it comes, never reasoning; `now` is a clock in seconds, for
    the time to the first token.
    """

    __slots__ = (
        "_began_s",
        "_calls",
        "_ended",
        "_expected",
        "_failures",
        "_finish",
        "_half",
        "_now",
        "_on_text",
        "_reasoning",
        "_room",
        "_text",
        "_think",
        "_ttft_ms",
        "model",
        "usage",
    )

    def __init__(
        self,
        expected: Expected,
        failures: FailureReader,
        now: Callable[[], float],
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._expected = expected
        self._failures = failures
        self._now = now
        self._began_s = now()
        self._ttft_ms: float | None = None
        self._on_text = on_text
        self._think = ThinkSplitter(inside=expected.profile.think_open)
        self._calls = CallAssembler(expected.known)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._half = ""
        self._room = MOST_CHARS
        self._finish: str | None = None
        self._ended = False
        self.usage: Usage | None = None
        self.model = ""

    @property
    def finished(self) -> bool:
        """Return whether the answer is whole, though its usage may still follow."""
        return self._ended or self._finish is not None

    def take_chunk(self, chunk: Json) -> None:
        """Take one event of a stream."""
        choice = self._choice_of(chunk)
        if choice is None:
            return
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._take_text(delta)
            for entry in _entries(delta):
                self._calls.add_delta(entry)
            if self._ttft_ms is None and any(delta.get(part) for part in _CONTENT):
                self._ttft_ms = (self._now() - self._began_s) * 1000
        self._take_finish(choice)

    def take_whole(self, answer: Json) -> None:
        """Take an answer that was not streamed."""
        choice = self._choice_of(answer)
        message = None if choice is None else choice.get("message")
        if choice is None or not isinstance(message, dict):
            raise unavailable("The model endpoint sent an answer without a message.")
        self._take_text(message)
        for entry in _entries(message):
            self._calls.add_whole(entry)
        self._take_finish(choice)
        self._ended = True

    def end(self) -> None:
        """Take note of the marker that ends a stream."""
        self._ended = True

    def reply(self, default_model: str, dropped: Iterable[str] = ()) -> ModelReply:
        """Return the whole answer, or raise when its end never came."""
        if not self.finished:
            raise ModelFailure(unavailable(_CUT).fault, self.usage)
        if self._finish == "error":
            failed = unavailable("The model endpoint ended its answer with an error.")
            raise ModelFailure(failed.fault, self.usage)
        self._show(self._think.close())
        if self._half and self._on_text is not None:
            self._on_text(clean(self._half))
        text = self._read_text_calls(clean("".join(self._text)))
        reasoning = "".join((*self._reasoning, self._think.reasoning)).strip()
        calls = self._calls.finished(self._expected.taken)
        return ModelReply(
            text=text,
            reasoning=clean(reasoning) or None,
            calls=calls,
            usage=self.usage,
            finish_reason=_normal(self._finish, called=bool(calls)),
            model=clean(self.model) or default_model,
            ttft_ms=self._ttft_ms,
            dropped=tuple(dropped),
        )

    def _choice_of(self, body: Json) -> dict[str, Json] | None:
        """Return the first choice, after keeping what stands beside it."""
        if not isinstance(body, dict):
            raise unavailable("The model endpoint sent something that is no answer.")
        if body.get("error"):
            failure = self._failures.from_error(body["error"])
            raise ModelFailure(failure.fault, self.usage)
        if body.get("usage"):
            self.usage = _usage_of(body["usage"]) or self.usage
        model = body.get("model")
        if isinstance(model, str) and model:
            self.model = model
        choices = body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return first if isinstance(first, dict) else None

    def _take_text(self, part: dict[str, Json]) -> None:
        thought = part.get("reasoning_content") or part.get("reasoning")
        if isinstance(thought, str):
            self._reasoning.append(self._counted(thought))
        content = part.get("content") or part.get("refusal")
        if isinstance(content, str):
            self._show(self._think.feed(self._counted(content)))
        elif isinstance(content, list):
            self._take_parts(content)

    def _take_parts(self, parts: list[Json]) -> None:
        """Take content that is a list of typed parts."""
        for part in parts:
            if not isinstance(part, dict):
                continue
            if part.get("type") in {"thinking", "reasoning"}:
                thought = _flat(part.get("thinking") or part.get("text"))
                self._reasoning.append(self._counted(thought))
            else:
                self._show(self._think.feed(self._counted(_flat(part.get("text")))))

    def _counted(self, text: str) -> str:
        """Return the text, while there is room for it."""
        self._room -= len(text)
        if self._room < 0:
            message = f"The model wrote more than {MOST_CHARS:,} characters in one answer."
            raise ModelFailure(unavailable(message).fault, self.usage)
        return text

    def _show(self, text: str) -> None:
        """Keep visible text and pass it on, save half a character at its end."""
        if not text:
            return
        self._text.append(text)
        if self._on_text is None:
            return
        if self._half:
            text, self._half = self._half + text, ""
        if open_pair(text):
            text, self._half = text[:-1], text[-1]
        if text:
            self._on_text(clean(text))

    def _take_finish(self, choice: dict[str, Json]) -> None:
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish

    def _read_text_calls(self, text: str) -> str:
        if not self._expected.profile.text_calls or self._calls:
            return text
        text, entries = read_text_calls(text, self._expected.known)
        for entry in entries:
            self._calls.add_whole(entry)
        return text


def _entries(part: dict[str, Json]) -> list[Json]:
    calls = part.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _flat(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_flat(item.get("text")) for item in value if isinstance(item, dict))
    return ""


def _normal(finish: str | None, *, called: bool) -> str:
    """Return why the answer ended, made consistent with what is in it."""
    reason = _FINISH.get(finish or "", finish or "stop")
    if reason in {"stop", "tool_calls"}:
        return "tool_calls" if called else "stop"
    return clean(reason)


def _usage_of(value: Json) -> Usage | None:
    """Return the tokens reported; None when there are none, as some endpoints report zeros."""
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    usage = Usage(
        input_tokens=_count(value.get("prompt_tokens")),
        output_tokens=_count(value.get("completion_tokens")),
        cached_tokens=_count(cached or value.get("prompt_cache_hit_tokens")),
        model_calls=1,
    )
    usage = replace(usage, cached_tokens=min(usage.cached_tokens, usage.input_tokens))
    return usage if usage.tokens else None


def _count(value: Json) -> int:
    """Return a count; nothing that is none of a sensible size (NaN compares as false)."""
    if isinstance(value, int | float) and 0 <= value < _MOST_TOKENS:
        return int(value)
    return 0
