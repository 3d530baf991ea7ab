"""Identifiers: their shapes and how they are minted from time and chance given as arguments."""

from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_CHANCE_BITS: Final = 80


def mint(prefix: str, *, at_us: int, entropy: bytes) -> str:
    """Return a time-ordered id such as `ses_01k…`: 48 bits of milliseconds, then 80 of chance.

    Args:
        prefix: what the id names (`ses`, `apr`, `art`, `wrk`).
        at_us: microseconds since the epoch, UTC.
        entropy: at least ten random bytes.

    """
    chance = int.from_bytes(entropy[:10], "big")
    value = ((at_us // 1000) << _CHANCE_BITS) | chance
    chars = [_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(chars)}"


def call_id(turn: int, step: int, index: int) -> str:
    """Return the machine's id of a tool call, unique in its session: `t<turn>_c<step>_<i>`."""
    return f"t{turn}_c{step}_{index}"


def approval_id(session: str, call: str) -> str:
    """Return the id of the approval of a call; `approval_parts` takes it apart again."""
    return f"apr_{session.removeprefix('ses_')}_{call}"


def approval_parts(approval: str) -> tuple[str, str] | None:
    """Return the session and the call of an approval, or None when the id cannot be one."""
    kind, _, rest = approval.partition("_")
    session, _, call = rest.partition("_")
    return (f"ses_{session}", call) if kind == "apr" and session and call else None


def idempotency_key(session: str, call: str) -> str:
    """Return the key which a tool receives, the same for every attempt of one call."""
    return f"{session}:{call}"
