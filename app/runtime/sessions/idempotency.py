"""`Idempotency-Key`: the first answer again for the same request, a refusal for another one."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from app.runtime.ports.keys import Keyring
from app.runtime.ports.sessions import Remember, Remembered
from app.runtime.refusals import Conflict, KeyInFlight, KeyReused

GONE: Final = HTTPStatus.GONE
"""The status of a record whose answer is no more: its session was erased, or it never came to be.

The key is kept, since a request that is repeated must not take effect again.
"""

OURS: Final = "schedule:"
"""How the keys begin under which schedules fire."""

_THEIRS: Final = "\x1f"
"""Stands before a user's key that begins like one of ours; no header can hold it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request under an idempotency key: where it went and what it said.

    What it said is kept as a keyed digest: a plain one would let whoever reads the table try out
    short bodies.
    """

    tenant: str
    key: str
    route: str
    said: bytes

    @classmethod
    def by_user(cls, tenant: str, key: str, route: str, body: bytes) -> "Attempt":
        """Return the attempt of a request whose key a user chose: no such key is one of ours."""
        return cls.of(tenant, f"{_THEIRS}{key}" if key.startswith(OURS) else key, route, body)

    @classmethod
    def of(cls, tenant: str, key: str, route: str, body: bytes) -> "Attempt":
        """Return the attempt of a request that carries this key."""
        return cls(tenant, key, route, route.encode() + b"\0" + body)

    def record(
        self, keyring: Keyring, status: int, body: bytes, session_id: str | None
    ) -> Remember:
        """Return what is written beside the effect of the request."""
        digest, sealed = keyring.digest_record(self.said), keyring.seal_record(body)
        return Remember(self.tenant, self.key, self.route, digest, status, sealed, session_id)

    def same(self, keyring: Keyring, found: Remembered) -> bool:
        """Return whether what is remembered is this very request."""
        return keyring.is_digest(found.body_hash, self.said)

    def replay(self, keyring: Keyring, found: Remembered) -> "Answer":
        """Return the first answer again.

        Raises:
            KeyReused: when the key stands for another request.
            KeyInFlight: when the first one has not ended.
            Conflict: when its answer is no more.

        """
        if found.status == GONE:
            message = "What the first request under this key made was erased since."
            raise Conflict(message, "session-erased")
        if not self.same(keyring, found):
            message = (
                f"The idempotency key {self.key.removeprefix(_THEIRS)!r} was used for another "
                "request; take a new key for a new request."
            )
            raise KeyReused(message)
        if found.status == 0:
            message = (
                "The first request under this key is still being carried out, or was cut off. "
                "Try again soon: what was cut off is told apart once it is too old to be alive."
            )
            raise KeyInFlight(message)
        body = keyring.open_record(found.body)
        return Answer(found.status, body, replayed=True, location=found.location)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer ready for the wire: status and JSON body."""

    status: int
    body: bytes
    session_id: str | None = None
    replayed: bool = False
    location: str | None = None
