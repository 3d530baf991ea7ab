"""Exit codes, and the errors that a command can end with.

CliError ── code, and a message that says what happened and what to do
  ├─ ServiceError       the service answered with a problem
  └─ UnreachableError   there was no answer
"""

from enum import IntEnum
from typing import Final

from typing_extensions import override


class Exit(IntEnum):
    """What the process answers its caller; the numbers are documented and stay."""

    COMPLETED = 0
    USAGE = 2
    STOPPED = 3
    FAILED = 4
    CANCELLED = 5
    WAITING = 6
    UNREACHABLE = 7
    INTERRUPTED = 130


EXIT_CODES: Final = (
    "Exit codes: 0 completed · 2 wrong usage, or the service refused · 3 stopped by a guard · "
    "4 failed · 5 cancelled · 6 waiting for a person · 7 the service cannot be reached · "
    "130 Ctrl-C."
)

_BY_STATUS: Final = {
    "completed": Exit.COMPLETED,
    "stopped": Exit.STOPPED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
    "waiting": Exit.WAITING,
}


def exit_for(status: str) -> Exit:
    """Return the code for the status a turn ended with; an unknown one is no success."""
    return _BY_STATUS.get(status, Exit.FAILED)


class CliError(Exception):
    """A command cannot go on; `code` is what the process answers."""

    code: Exit = Exit.USAGE

    def __init__(self, happened: str, *, todo: str = "") -> None:
        """Keep what happened, and what the user can do about it."""
        super().__init__(happened)
        self.happened = happened
        self.todo = todo

    @override
    def __str__(self) -> str:
        """Return both, the second on a line of its own."""
        return f"{self.happened}\n{self.todo}" if self.todo else self.happened


class ServiceError(CliError):
    """The service answered, and it was a refusal; `status` is the HTTP status."""

    def __init__(self, happened: str, *, status: int, todo: str = "") -> None:
        """Keep the status beside the words."""
        super().__init__(happened, todo=todo)
        self.status = status


class UnreachableError(CliError):
    """No answer: nothing listens there, or the connection broke and stayed broken."""

    code = Exit.UNREACHABLE
