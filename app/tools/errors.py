"""Why a registration is refused.

DefinitionProblem
  ├─ DefinitionError       the body cannot work; every problem with its place
  └─ NotSupportedYetError  a field of the contract that is not built yet
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the JSON pointer of where."""

    pointer: str
    message: str


class DefinitionProblem(Exception):  # noqa: N818 - the parent of the two errors below
    """A registration that is not accepted."""


class DefinitionError(DefinitionProblem):
    """The definition cannot work."""

    def __init__(self, errors: Sequence[Problem]) -> None:
        """Keep every problem that was found."""
        super().__init__("; ".join(f"{e.pointer or '/'}: {e.message}" for e in errors))
        self.errors = tuple(errors)


class NotSupportedYetError(DefinitionProblem):
    """The definition is good, but one of its fields is not built yet."""

    def __init__(self, field: str) -> None:
        """Keep the name of the field, dotted."""
        super().__init__(f"'{field}' is not supported yet; leave it out or give its default")
        self.field = field
