"""Old event shapes made new: pure functions from the data of version v to that of v + 1."""

from collections.abc import Callable, Mapping
from typing import Final

Data = dict[str, object]
Upcaster = Callable[[Data], Data]

UPCASTERS: Final[Mapping[tuple[str, int], Upcaster]] = {}
"""By event type and the version they read. None so far: every event is at version 1."""


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
