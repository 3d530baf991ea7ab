"""Tools: their versions, and what carries them out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.core.canonical import Json
from app.core.events import ToolRef
from app.core.faults import Fault
from app.core.toolbox import ToolSpec
from app.runtime.refusals import FieldFault


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

    `output` is what is kept as the call's result, `content` what the model reads of it where that
    is less, `detail` says in words what was told.
    """

    happened: bool | None
    output: Json = None
    detail: str = ""
    content: str | None = None


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


class ToolStore(Protocol):
    """Tools as immutable versions with one current head each."""

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        """Store the next version; None when creating a name that exists, or changing none."""

    async def current(self, tenant: str) -> list[ToolSpec]:
        """Return the current version of every tool that was not deleted, by name."""

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        """Return one version, deleted tools included."""

    async def delete(self, tenant: str, name: str) -> bool:
        """Withdraw a tool; sessions that pinned it keep their version."""


class ToolPort(Protocol):
    """Carries tools out."""

    async def run(self, request: ToolRequest) -> ToolReply:
        """Run one attempt, within its timeout.

        Raises:
            ToolFailure: with the fault and whether it may have been sent.
            Withheld: when the request might not be sent any more, and was not.

        """

    async def check(self, request: ToolRequest) -> StatusReply:
        """Ask the tool whether a call under this key took effect.

        Raises:
            ToolFailure: when it cannot be asked now.
            Withheld: when the question might not be sent any more, and was not.

        """


class ArgumentReader(Protocol):
    """Reads and validates the arguments of calls."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        """Return the arguments of a call, or why it cannot run."""
