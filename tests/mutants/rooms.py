"""What is mutated, and by which tests each room is judged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Room:
    """Some files of app/, and the tests that must notice a change in them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def place(self) -> Path:
        """The copy of the tree in which its mutants live."""
        return ROOT / ".mutants" / self.name


def _all_of(folder: str, first: tuple[str, ...]) -> tuple[str, ...]:
    """Return every file of a folder, these first."""
    found = sorted(str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py"))
    names = [f"{folder}/{name}.py" for name in first]
    return (*names, *(f for f in found if f not in names))


_FIRST: Final = ("evolve", "machine", "plan", "changing", "lifecycle", "guards", "call_folds")


_EXECUTION: Final = "app/runtime/execution"

ROOMS: Final = (
    Room("core", _all_of("app/core", _FIRST), ("tests/core", "tests/replay")),
    Room(
        "claims",
        tuple(f"{_EXECUTION}/{name}.py" for name in ("writer", "lease", "worker")),
        ("tests/runtime",),
    ),
)
