"""What is handed over at the ports of models, tools and the live hub: requests and replies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.core.canonical import Json
from app.core.events import ModelRef, Usage
from app.core.faults import Fault
from app.core.messages import Message
from app.core.toolbox import ToolSpec
from app.runtime.refusals import FieldFault


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """What a hub passes on: a sealed event (`seq`), or a sealed delta without one."""

    session_id: str
    seq: int | None
    payload: bytes
    type: str = ""


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


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One attempt at one call. The key is the same for every attempt of it.

    `may_send` is asked when the first byte is about to go out: resolving and connecting take time,
    in which the caller may have lost the right to send.
    """

    tenant: str
    spec: ToolSpec
    arguments: Mapping[str, Json]
    key: str
    traceparent: str
    timeout_s: float
    may_send: Callable[[], bool] = _always


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A tool's output, and the text for the model where it differs from the output itself."""

    output: Json
    content: str | None


Presenter = Callable[[Json, int], ToolReply]
"""Bounds an output: what is kept of it, and what the model reads of it, in so many characters."""


@dataclass(frozen=True, slots=True)
class StatusReply:
    """Whether a call took effect, by its tool's own word; `happened` None: it does not know.

    `output` is what the tool keeps as the call's result, `detail` says in words what was told.
    """

    happened: bool | None
    output: Json = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments read from the model's text: validated and with defaults, or the fault.

    `replay` is valid JSON text for the history where the model's own text is none.
    `needs_approval` is set only with valid arguments: whether a person must agree to this call.
    `problems` are the places where arguments do not fit the schema, for a person who wrote them.
    """

    arguments: dict[str, object] | None
    fault: Fault | None
    replay: str | None
    needs_approval: bool = False
    problems: tuple[FieldFault, ...] = ()
