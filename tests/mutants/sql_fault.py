"""One change of one statement, in the text as Postgres gets it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlFault:
    """One change of one statement; each piece must be there exactly as often as it says."""

    module: str
    statement: str
    what: str
    old: str
    new: str
    times: int = 1

    def applied(self, text: str) -> str:
        """Return the statement with the fault.

        Raises:
            LookupError: when the piece is not there (any more).

        """
        if text.count(self.old) != self.times:
            raise LookupError(f"{self.statement}, {self.what}: {text.count(self.old)} pieces")
        return text.replace(self.old, self.new)


def of(
    module: str, statement: str, *faults: tuple[str, str, str] | tuple[str, str, str, int]
) -> tuple[SqlFault, ...]:
    """Return faults of one statement, each as `what`, `old`, `new` and perhaps `times`."""
    return tuple(SqlFault(f"app.storage.{module}", statement, *fault) for fault in faults)
