"""Old event shapes made new: pure functions from the data of version v to that of v + 1."""

from collections.abc import Callable, Mapping
from typing import Final

Data = dict[str, object]
Upcaster = Callable[[Data], Data]


def _calls_without_policy(data: Data) -> Data:
    """Version 2 says of each call whether it needs approval and who makes it; before, none did."""
    return data


def _message_in_line(data: Data) -> Data:
    """Version 2 does as `policy` says; before, every message was enqueued, whatever was asked.

    Such an event is written when a process of this release puts a message that is to steer or to
    interrupt into the inbox of a session which one of the release before is running.
    """
    asked = data.get("policy")
    return {**data, "policy": "enqueue"} if asked in {"steer", "interrupt"} else data


UPCASTERS: Final[Mapping[tuple[str, int], Upcaster]] = {
    ("message.received", 1): _message_in_line,
    ("model.answered", 1): _calls_without_policy,
}
"""By event type and the version they read. Fields that are absent take their defaults."""


class UnreadableEventError(Exception):
    """An event of a type or version which this code does not know."""


def upcast(
    kind: str,
    version: int,
    data: Data,
    *,
    to: int,
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> Data:
    """Return the data of an event lifted step by step to the version `to`.

    Raises:
        UnreadableEventError: when the event is newer than this code, or a step is missing.

    """
    while version < to:
        step = upcasters.get((kind, version))
        if step is None:
            message = f"No upcaster reads {kind} version {version}."
            raise UnreadableEventError(message)
        data, version = step(data), version + 1
    if version > to:
        message = f"{kind} version {version} was written by a newer release; this one reads {to}."
        raise UnreadableEventError(message)
    return data
