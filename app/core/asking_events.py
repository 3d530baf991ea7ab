"""What people (or the tool itself) are asked about a call, and what they say, as bodies of events.

They are exported by `app.core.events`, which says what an event is.
"""

from dataclasses import dataclass
from typing import ClassVar

from app.core.canonical import Json
from app.core.faults import Fault
from app.core.values import Choice


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call must not be made before a person allows it: just this call, with these arguments."""

    TYPE: ClassVar[str] = "approval.requested"
    V: ClassVar[int] = 1
    approval_id: str
    """The approval's id, `apr_…`."""
    call_id: str
    """The call's id."""
    name: str
    """The tool's name."""
    arguments: dict[str, object]
    """The arguments it would be called with."""
    hash: str
    """A hash of tool and arguments: what is approved is this and nothing else."""
    expires_at_us: int
    """When the question lapses, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person allowed or denied a call, or nobody did in time. There is one for each approval."""

    TYPE: ClassVar[str] = "approval.decided"
    V: ClassVar[int] = 1
    approval_id: str
    """The approval's id."""
    call_id: str
    """The call's id."""
    decision: Choice
    """What was decided."""
    message: str | None = None
    """What the person said to it; null when nothing."""
    arguments: dict[str, object] | None = None
    """The arguments as the person changed them; null when they stay as they were."""
    digest: str = ""
    """The hash of the changed action; empty when nothing was changed."""
    loop_digest: str = ""
    """The same without the arguments which the tool names in `loop_ignore`."""
    note: str | None = None
    """What the model is told beside the call's result; null when it is not told."""
    note_tokens: int = 0
    """The size of `note`, in tokens."""
    by: str | None = None
    """Who decided, as far as it is known."""


@dataclass(frozen=True, slots=True)
class VerificationAsked:
    """A `once` call has an unknown outcome and a person must say what happened."""

    TYPE: ClassVar[str] = "verification.requested"
    V: ClassVar[int] = 1
    calls: tuple[str, ...]
    """The ids of the calls to be verified."""


@dataclass(frozen=True, slots=True)
class VerificationDecided:
    """It is known whether an uncertain call happened."""

    TYPE: ClassVar[str] = "verification.decided"
    V: ClassVar[int] = 1
    call_id: str
    """The call's id."""
    happened: bool
    """Whether the call took effect."""
    output: Json = None
    """What it returned, as far as that is known; null when it is not."""
    by: str = "person"
    """Who knows: `person`, or `status_check` when the tool itself was asked."""


@dataclass(frozen=True, slots=True)
class ToolChecked:
    """Whether a `once` call happened is not known, and the tool was asked or will be."""

    TYPE: ClassVar[str] = "tool.checked"
    V: ClassVar[int] = 1
    call_id: str
    """The call's id."""
    attempt: int
    """How often the tool was asked; 0: it will be, since the call itself failed."""
    fault: Fault
    """Why the outcome is not known."""
    retry_at_us: int | None = None
    """When it is asked (again), in microseconds since the epoch; null: no more."""
