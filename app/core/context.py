"""What is sent to the model: the history in order, and what the request will cost in tokens."""

import hashlib
from collections.abc import Sequence
from typing import Final, assert_never

from app.core.canonical import as_text
from app.core.events import Policy, Purpose, ToolFinished
from app.core.faults import Fault
from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.core.state import Action, Fact, State

MESSAGE_OVERHEAD: Final = 4
"""Tokens which a chat template adds to each message, by the usual estimate."""

CLOSING_NOTE: Final = (
    "No further steps or tool calls are possible now. With what is known so far, give the user the "
    "best answer you can, and say plainly what is missing."
)
CLOSING_NOTE_TOKENS: Final = 36


def assemble(state: State, purpose: Purpose) -> tuple[Message, ...]:
    """Return the messages after the system prompt, in an order that every provider takes.

    Neighbouring user messages become one, since strict chat templates want alternating roles.
    """
    messages = list(state.history)
    if purpose is Purpose.CLOSING:
        messages.append(UserMessage(CLOSING_NOTE, CLOSING_NOTE_TOKENS, note=True))
    return _alternating(messages)


def _alternating(messages: Sequence[Message]) -> tuple[Message, ...]:
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            text = f"{last.text}\n\n{message.text}"
            merged[-1] = UserMessage(text, last.tokens + message.tokens, last.note and message.note)
        else:
            merged.append(message)
    return tuple(merged)


def next_input(state: State, purpose: Purpose) -> int:
    """Return the tokens of the next request: what was last reported, and what came since."""
    if purpose is Purpose.CLOSING:
        shorter = state.context_tokens - state.tools_tokens
        return max(0, shorter) + CLOSING_NOTE_TOKENS + MESSAGE_OVERHEAD
    return state.context_tokens


def steering_tokens(state: State) -> int:
    """Return what the history grows by when the messages that are to steer the turn enter it."""
    steering = (text for text in state.queue if text.policy is Policy.STEER)
    return sum(text.tokens + MESSAGE_OVERHEAD for text in steering)


def request_hash(messages: Sequence[Message]) -> str:
    """Return a hash that tells two requests apart without holding their content."""
    sha = hashlib.sha256()
    for message in messages:
        parts = _parts(message)
        sha.update(f"{len(parts)}:".encode())
        for part in parts:
            text = part.encode("utf-8", "surrogatepass")
            sha.update(b"%d:%b" % (len(text), text))
    return sha.hexdigest()


def _parts(message: Message) -> list[str]:
    match message:
        case UserMessage():
            return ["user", message.text]
        case AssistantMessage():
            calls = [part for call in message.calls for part in (call.name, call.arguments)]
            return ["assistant", message.text, *calls]
        case ToolMessage():
            return ["tool", message.name, message.content]
        case _:
            assert_never(message)


def fault_text(fault: Fault) -> str:
    """Return a fault as the model reads it: {kind, message, retry_hint} (TOOL-8)."""
    return as_text(
        {"error": {"kind": fault.kind, "message": fault.message, "retry_hint": fault.retry_hint}}
    )


def content_of(result: ToolFinished) -> str:
    """Return what the model reads as the result of a call."""
    if result.content is not None:
        return result.content
    return fault_text(result.error) if result.error is not None else as_text(result.output)


_FACT_CHARS: Final = 400
_FACT_OVERHEAD: Final = 12


def fact_of(action: Action) -> Fact:
    """Return a result as one line of the digest; of a long one the beginning, with its share."""
    content, tokens = action.content, action.tokens
    if len(content) > _FACT_CHARS:
        tokens = tokens * _FACT_CHARS // len(content)
        content = f"{content[:_FACT_CHARS]}… ({len(content)} characters)"
    return Fact(f"{action.tool}: {content}", tokens + _FACT_OVERHEAD)


def digest(facts: Sequence[Fact], best: str) -> str:
    """Return the best result so far without asking the model: its last words and the facts."""
    parts = [best.strip()] if best.strip() else []
    if facts:
        parts.append("\n".join(("Confirmed so far:", *(f"- {fact.text}" for fact in facts))))
    return "\n\n".join(parts)
