"""Hot states: the folded state of a session, sealed, for a quick resume.

A copy that may vanish at any time (eviction, a restart, no Redis): then the journal is folded.
"""

from struct import Struct
from typing import Final

from app.live.link import Link
from app.runtime.errors import LiveUnavailable
from app.runtime.ports.journal import Snapshot

_DAY_S: Final = 86_400
_HEADER: Final = Struct(">QI")
_EVICTING: Final = b"allkeys"


class RedisHotStates:
    """Hot states in Redis, for a day."""

    def __init__(self, link: Link, *, prefix: str = "surefoot") -> None:
        """Keep states under keys that begin with the prefix."""
        self._link = link
        self._prefix = prefix

    def _key(self, session_id: str) -> str:
        return f"{self._prefix}:hot:{session_id}"

    async def put(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a state; silently not, when Redis is away."""
        value = _HEADER.pack(snapshot.seq, snapshot.state_v) + snapshot.payload
        self._link.post([("SET", self._key(session_id), value, "EX", _DAY_S)])

    async def get(self, session_id: str) -> Snapshot | None:
        """Return the state, or None."""
        try:
            (value,) = await self._link.run([("GET", self._key(session_id))])
        except LiveUnavailable:
            return None
        if not isinstance(value, bytes) or len(value) < _HEADER.size:
            return None
        seq, state_v = _HEADER.unpack_from(value)
        return Snapshot(seq, state_v, value[_HEADER.size :])

    async def warning(self) -> str | None:
        """Return what an operator should know of this Redis, if anything: it evicts any key."""
        try:
            (answer,) = await self._link.run([("CONFIG", "GET", "maxmemory-policy")])
        except LiveUnavailable:
            return None
        policy = _policy(answer)
        if not policy.startswith(_EVICTING):
            return None
        return (
            f"Redis evicts any key when its memory is full (maxmemory-policy {policy.decode()}): "
            "hot states will be rebuilt from Postgres more often."
        )


def _policy(answer: object) -> bytes:
    """Read the answer to CONFIG GET, which is a map or a flat list."""
    values = list(answer.values()) if isinstance(answer, dict) else answer
    last = values[-1] if isinstance(values, list) and values else b""
    return last.encode() if isinstance(last, str) else bytes(last)
