"""What is sent to the model: the history in order, and what the request will cost in tokens."""

import hashlib
from collections.abc import Sequence
from typing import Final

from app.core.canonical import as_text
from app.core.events import Purpose, ToolFinished
from app.core.faults import Fault
from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.core.state import Action, State

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
        elif isinstance(message, AssistantMessage) and _silent(message):
            continue
        else:
            merged.append(message)
    return tuple(merged)


def _silent(message: AssistantMessage) -> bool:
    return not message.calls and not message.text.strip()


def next_input(state: State, purpose: Purpose) -> int:
    """Return the tokens of the next request: what was last reported, and what came since."""
    if purpose is Purpose.CLOSING:
        shorter = state.context_tokens - state.tools_tokens
        return max(0, shorter) + CLOSING_NOTE_TOKENS + MESSAGE_OVERHEAD
    return state.context_tokens


def request_hash(messages: Sequence[Message]) -> str:
    """Return a hash that tells two requests apart without holding their content."""
    sha = hashlib.sha256()
    for message in messages:
        match message:
            case UserMessage():
                sha.update(b"u" + message.text.encode())
            case AssistantMessage():
                sha.update(b"a" + message.text.encode())
                for call in message.calls:
                    sha.update(f"c{call.name}{call.arguments}".encode())
            case ToolMessage():
                sha.update(b"t" + message.content.encode())
    return sha.hexdigest()


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


def fact_of(action: Action) -> str:
    """Return one confirmed fact, a line for the digest of a turn that ends without an answer."""
    content = action.content
    if len(content) > _FACT_CHARS:
        content = f"{content[:_FACT_CHARS]}… ({len(content)} characters)"
    return f"{action.tool}: {content}"


def digest(facts: Sequence[str], best: str) -> str:
    """Return the best result so far without asking the model: its last words and the facts."""
    parts = [best.strip()] if best.strip() else []
    if facts:
        parts.append("\n".join(("Confirmed so far:", *(f"- {fact}" for fact in facts))))
    return "\n\n".join(parts)
