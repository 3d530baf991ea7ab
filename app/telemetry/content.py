"""What was said, for spans: only when asked for, masked, and cut before it costs anything.

Secrets and the parameters which a tool marks as sensitive are masked wherever they turn up in the
same span. Tools whose parameters are not known are not told about at all.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.events import CallMade, ModelAnswered
from app.core.messages import Message, UserMessage
from app.telemetry import names
from app.telemetry.masking import MASK, mask_fields
from app.telemetry.project import Value
from app.telemetry.stretch import ModelTried, PhaseLeft, Stretch, ToolTried, TurnOver

_ITEMS: Final = 50
_DEPTH: Final = 6
_SHORTEST: Final = 4

Sensitive = Callable[[str], Collection[str] | None]
"""The sensitive parameters of a tool by its name; None for a tool that is not known."""


def _nothing_known(_tool: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Content:
    """Content attributes of a stretch; `mask` takes configured secrets out of a text."""

    mask: Callable[[str], str]
    limit: int
    sensitive: Sensitive = _nothing_known

    def __call__(self, stretch: Stretch) -> dict[str, Value]:
        """Return the attributes."""
        match stretch:
            case ModelTried(answer=ModelAnswered() as answer):
                return {names.OUTPUT_MESSAGES: self._answer(answer)}
            case ToolTried():
                return self._tool(stretch)
            case TurnOver():
                return self._turn(stretch)
            case ModelTried() | PhaseLeft():
                return {}

    def _turn(self, over: TurnOver) -> dict[str, Value]:
        said = next((t for m in reversed(over.turn.history) if (t := _said(m))), "")
        result = over.ended.result.text
        return {
            names.INPUT_MESSAGES: self._text([_message("user", self._cut(said))]),
            names.OUTPUT_MESSAGES: self._text([_message("assistant", self._cut(result))]),
        }

    def _answer(self, answer: ModelAnswered) -> str:
        parts: list[object] = [{"type": "text", "content": self._cut(answer.text)}]
        hidden: list[str] = []
        for call in answer.tool_calls[:_ITEMS]:
            parts.append(self._call(call))
            hidden.extend(self._hidden(call.name, call.arguments or {}))
        return self._text([{"role": "assistant", "parts": parts}], hidden)

    def _call(self, call: CallMade) -> dict[str, object]:
        part: dict[str, object] = {"type": "tool_call", "id": call.call_id, "name": call.name}
        if self.sensitive(call.name) is not None:
            part["arguments"] = self._small(call.arguments)
        return part

    def _tool(self, tried: ToolTried) -> dict[str, Value]:
        if self.sensitive(tried.name) is None:
            return {}
        hidden = self._hidden(tried.name, tried.arguments)
        found: dict[str, Value] = {names.TOOL_ARGUMENTS: self._text(tried.arguments, hidden)}
        if tried.finished is not None:
            finished = tried.finished
            error = None if finished.error is None else finished.error.message
            found[names.TOOL_RESULT] = self._text(error or finished.output, hidden)
        return found

    def _hidden(self, tool: str, arguments: Mapping[str, object]) -> list[str]:
        """Return the values of sensitive parameters, as texts to be masked."""
        marked = self.sensitive(tool) or ()
        values = [arguments[name] for name in marked if name in arguments]
        return [text for value in values if len(text := _plain(value)) >= _SHORTEST]

    def _text(self, value: object, hidden: Collection[str] = ()) -> str:
        small = self._small(value)
        text = small if isinstance(small, str) else json.dumps(small, ensure_ascii=False)
        for secret in hidden:
            text = text.replace(secret, MASK)
            text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], MASK)
        return self.mask(text)

    def _small(self, value: object, depth: int = 0) -> object:
        """Return a value with its texts cut and its lists shortened, whatever its size was."""
        if isinstance(value, str):
            return self._cut(value)
        if depth >= _DEPTH:
            return "…"
        if isinstance(value, Mapping):
            pairs = mask_fields(dict(list(value.items())[:_ITEMS]))
            return {key: self._small(item, depth + 1) for key, item in pairs.items()}
        if isinstance(value, list | tuple):
            return [self._small(item, depth + 1) for item in value[:_ITEMS]]
        return value

    def _cut(self, text: str) -> str:
        """Cut a text a little above the limit: the mask has to see a secret whole."""
        return text if len(text) <= 2 * self.limit else text[: 2 * self.limit]


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _said(message: Message) -> str:
    """Return what a user said; nothing for what others said or the runtime noted."""
    return message.text if isinstance(message, UserMessage) and not message.note else ""
