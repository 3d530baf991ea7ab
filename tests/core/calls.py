"""Calls as the shell reads them from an answer, for tests of the pure machine."""

from typing import Final

from app.core.canonical import action_digest, as_text
from app.core.events import CallMade, EffectClass
from app.core.faults import Fault, FaultKind

ONCE: Final = EffectClass.ONCE
READ: Final = EffectClass.READ
IDEMPOTENT: Final = EffectClass.IDEMPOTENT


def call(
    name: str,
    arguments: dict[str, object] | None = None,
    *,
    effect: EffectClass = READ,
    ignore: tuple[str, ...] = (),
    fault: Fault | None = None,
    raw: str | None = None,
    polling: bool = False,
    serial_group: str | None = None,
    depends_on: tuple[str, ...] = (),
    max_attempts: int = 3,
    timeout_s: float = 15.0,
    needs_approval: bool = False,
    approval_ttl_s: float = 3_600.0,
    client: bool = False,
    checkable: bool = False,
) -> CallMade:
    """Return a call as the shell reads it; its ids are minted when it is answered."""
    given = arguments or {}
    read = fault is None
    return CallMade(
        "",
        "",
        name,
        as_text(given) if raw is None else raw,
        given if read else None,
        fault=fault,
        digest=action_digest(name, given) if read else "",
        loop_digest=action_digest(name, given, ignore) if read else "",
        version=1,
        effect=effect,
        polling=polling,
        serial_group=serial_group,
        depends_on=depends_on,
        max_attempts=max_attempts,
        timeout_s=timeout_s,
        needs_approval=needs_approval,
        approval_ttl_s=approval_ttl_s,
        client=client,
        checkable=checkable,
    )


def bad_call(name: str, raw: str = "{}") -> CallMade:
    """Return a call whose arguments were refused by the reader."""
    return call(name, raw=raw, fault=Fault.of(FaultKind.INVALID_ARGS, "q: is missing"))
