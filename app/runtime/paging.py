"""Pages of rows with a cursor: one row more than the page is read, to know whether more follow."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Identified(Protocol):
    """What has an id by which lists are ordered."""

    @property
    def id(self) -> str:
        """Return it."""


Row = TypeVar("Row", bound=Identified)


def cut(rows: Sequence[Row], limit: int) -> tuple[Sequence[Row], str | None]:
    """Return the page, and the id after which the next one begins; None when this is the last."""
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None
