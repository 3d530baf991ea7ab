"""The family of errors that cross a port.

PortError
  ├─ ModelFailure      a model call failed, with its fault and what it cost
  ├─ ToolFailure       a tool call failed, with its fault
  ├─ Withheld          a tool call was not sent: its caller may not send it any more
  ├─ StoreUnavailable  Postgres cannot be reached now
  ├─ StoreRefused      Postgres refused a statement: trying it again will not help
  │    └─ KeyTaken     the idempotency key got another meaning meanwhile
  ├─ LiveUnavailable   Redis cannot be reached now
  ├─ Erased            the session's data key was destroyed
  ├─ Tampered          sealed bytes do not open: changed, or put in another place
  └─ KeyMissing        the master key of this id was not given to this process
"""

from app.core.events import Usage
from app.core.faults import Fault


class PortError(Exception):
    """What the outside could not do."""


class ModelFailure(PortError):  # noqa: N818 - a fault of the world, not of the program
    """A model call failed; `usage` is what it cost as far as known."""

    def __init__(self, fault: Fault, usage: Usage | None = None) -> None:
        """Keep the fault."""
        super().__init__(fault.message)
        self.fault = fault
        self.usage = usage or Usage()


class ToolFailure(PortError):  # noqa: N818 - a fault of the world, not of the program
    """A tool call failed; `flagged` names the guard that stopped it, where it looks like an attack.

    The model may still be told: what it asked for is no proof that it meant harm.
    """

    def __init__(self, fault: Fault, *, flagged: str | None = None) -> None:
        """Keep the fault."""
        super().__init__(fault.message)
        self.fault = fault
        self.flagged = flagged


class Withheld(PortError):  # noqa: N818 - a decision, not a failure
    """Nothing of a tool call was sent: at its first byte the caller might not send it any more."""


class StoreUnavailable(PortError):  # noqa: N818 - a condition that passes
    """Postgres cannot be reached, or lost the connection while a statement ran."""


class StoreRefused(PortError):  # noqa: N818 - names the answer, as the others do
    """Postgres refused what was asked (bad data, a broken rule); the rest of a batch may pass."""


class KeyTaken(StoreRefused):
    """An idempotency key stands for something since a moment; `recall` tells what."""


class LiveUnavailable(PortError):  # noqa: N818 - a condition that passes
    """Redis cannot be reached; what it would have done is done more slowly without it."""


class Erased(PortError):  # noqa: N818 - a state of the data
    """The content was erased: its data key is gone."""


class Tampered(PortError):  # noqa: N818 - a state of the data
    """Sealed bytes do not open here: they were changed, moved, or sealed by another key."""


class KeyMissing(PortError):  # noqa: N818 - a state of the configuration
    """The master key of this id is not among those this process was given."""
