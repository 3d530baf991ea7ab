"""What the use cases refuse, and why: the API turns each into a problem document.

Refused
  ├─ NotFound        there is no such thing (of this tenant)
  ├─ Conflict        the session's state does not allow it now
  ├─ Invalid         a field is at fault
  ├─ NotSupported    the contract knows it, this release does not yet
  ├─ KeyReused       the idempotency key stands for another request
  ├─ KeyInFlight     the first request under this key has not ended
  ├─ KeyCutOff       nobody will ever know whether it took effect
  ├─ Overloaded      too much is waiting already
  └─ NoWorker        accepted, but nobody is there to carry it out
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field at fault, by its JSON pointer."""

    pointer: str
    message: str


class Refused(Exception):  # noqa: N818 - a family of answers, not of failures
    """A request that is answered with a problem; `detail` says what to do."""

    slug = "refused"

    def __init__(self, detail: str, *errors: FieldFault) -> None:
        """Keep what happened, and the fields at fault."""
        super().__init__(detail)
        self.detail = detail
        self.errors = errors


class NotFound(Refused):
    """There is no such thing, or it is another tenant's."""

    def __init__(self, kind: str, name: str) -> None:
        """Say what was not found."""
        super().__init__(f"There is no {kind} {name!r}.")
        self.slug = f"{kind.replace(' ', '-')}-not-found"


class Conflict(Refused):
    """The session's state does not allow it now."""

    def __init__(self, detail: str, slug: str = "conflict") -> None:
        """Say why, and under which stable name."""
        super().__init__(detail)
        self.slug = slug


class Invalid(Refused):
    """A field is at fault."""

    slug = "invalid-request"


class NotSupported(Refused):
    """The contract knows it, this release does not yet."""

    slug = "not-supported-yet"


class KeyReused(Refused):
    """The idempotency key was used for another request."""

    slug = "idempotency-key-reused"


class KeyInFlight(Refused):
    """The first request under this key has not ended."""

    slug = "idempotency-key-in-flight"


class KeyCutOff(Refused):
    """The first request under this key was cut off; nobody knows whether it took effect."""

    slug = "idempotency-key-cut-off"


class Overloaded(Refused):
    """Too many sessions wait for a worker already; nothing was started."""

    slug = "overloaded"


class NoWorker(Refused):
    """Accepted and kept, but no worker is there to carry it out now."""

    slug = "no-worker"
