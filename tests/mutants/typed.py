"""Which mutants does mypy refuse? `make check` would never let them through, tests or no tests."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from mutmut.mutation.file_mutation import mutate_file_contents

from tests.mutants.making import Mutant, copied, module_of
from tests.mutants.rooms import ROOT, Room

# Dead code and needless comparisons are left out: mutmut's own additions cause some of them.
_CODES: Final = frozenset(
    {"arg-type", "assignment", "attr-defined", "call-arg", "call-overload", "index", "operator"}
    | {"return-value", "union-attr", "dict-item", "list-item", "typeddict-item", "str-bytes-safe"}
)


def refused(room: Room, mutants: list[Mutant]) -> set[str]:
    """Return the names of those which mypy refuses, in a copy of the tree that has them all."""
    place = room.place / "typed"
    copied(ROOT / "app", place / "app")
    copied(ROOT / "pyproject.toml", place / "pyproject.toml")
    spans = {path: _spans(place, path) for path in sorted({m.path for m in mutants})}
    command = [sys.executable, "-m", "mypy", "--output", "json", *spans]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    errors: dict[str, list[int]] = defaultdict(list)
    for line in done.stdout.splitlines():
        error = json.loads(line)
        if error["severity"] == "error" and error["code"] in _CODES:
            errors[error["file"]].append(error["line"])
    return {
        name
        for path, of_path in spans.items()
        for name, (first, last) in of_path.items()
        if any(first <= line <= last for line in errors[path])
    }


def _spans(place: Path, path: str) -> dict[str, tuple[int, int]]:
    """Write the mutants of a file; properties keep their decorators, and mutmut leaves them out."""
    made = mutate_file_contents(path, (ROOT / path).read_text())
    (place / path).write_text(made.code)
    spans = made.line_span_by_function_name
    return {
        f"{module_of(path)}.{name}": (spans[name].start, spans[name].end)
        for name in made.mutant_names
    }
