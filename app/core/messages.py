"""The conversation as the core keeps it: provider-neutral, each message with its token count.

A vendor's id of a tool call is kept only as `wire_id`, for replaying the history to the endpoint;
everything of ours uses `call_id`, since endpoints repeat or omit theirs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.faults import Fault, FaultKind


@dataclass(frozen=True, slots=True)
class MessageCall:
    """One tool call inside an assistant message; `arguments` is valid JSON text."""

    call_id: str
    wire_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user said, or (`note`) what the runtime tells the model on its own account."""

    text: str
    tokens: int
    note: bool = False


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model answered; `reasoning` is replayed only to endpoints which want it."""

    text: str
    tokens: int
    calls: tuple[MessageCall, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one call, as the model reads it."""

    call_id: str
    wire_id: str
    name: str
    content: str
    tokens: int


Message = UserMessage | AssistantMessage | ToolMessage


def sequence_fault(messages: Iterable[Message]) -> Fault | None:
    """Return why a provider would refuse this history, or None when it is in order (CTX-7).

    In order means: every assistant message with calls is followed at once by exactly one tool
    message for each of them; no tool message stands elsewhere; no call id occurs twice.
    """
    open_ids: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.wire_id not in open_ids:
                return _out_of_order(f"a tool result without its call ({message.wire_id})")
            open_ids.remove(message.wire_id)
            continue
        if open_ids:
            return _out_of_order(f"calls without results ({', '.join(sorted(open_ids))})")
        if isinstance(message, AssistantMessage):
            ids = [call.wire_id for call in message.calls]
            if len(set(ids)) != len(ids) or seen.intersection(ids):
                return _out_of_order("a call id used twice")
            open_ids.update(ids)
            seen.update(ids)
    if open_ids:
        return _out_of_order(f"calls without results ({', '.join(sorted(open_ids))})")
    return None


def _out_of_order(what: str) -> Fault:
    return Fault.of(FaultKind.INTERNAL, f"The history holds {what}; it was not sent.")
