"""Mutants of the tables and constants at the top of modules, which mutmut leaves alone.

An entry less, or a number more by one; put into place in the process that tries it.
"""

import ast
import hashlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.making import Mutant, module_of

_FILLED_LATER: Final = frozenset({"_setters"})


@dataclass(frozen=True, slots=True)
class Table:
    """One changed table, and the mutant that it is."""

    mutant: Mutant
    sound: object
    faulty: object

    def put(self) -> None:
        """Put it into every module that has imported the sound one."""
        name = self.mutant.name.rpartition(".")[2]
        for module in [m for n, m in sys.modules.items() if n.startswith(("app.", "tests."))]:
            if vars(module).get(name) is self.sound:
                setattr(module, name, self.faulty)


def tables(paths: list[str], root: Path) -> Iterator[Table]:
    """Return what can be changed in the tables of these files, as they stand below this folder."""
    for path in paths:
        module = importlib.import_module(module_of(path))
        for name, node in _bound(root / path):
            sound, line = vars(module)[name], node.lineno
            for what, faulty in _changes(sound):
                key = f"{path} {what} {ast.unparse(node)}"
                digest = hashlib.sha256(key.encode()).hexdigest()[:16]
                mutant = Mutant(f"{module.__name__}.{name}", path, line, f"{name}: {what}", digest)
                yield Table(mutant, sound, faulty)


def _bound(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Return the names that a file itself binds at its top, and how.

    Not those which only other tables are made of: these have mutants of their own.
    """
    tree = ast.parse(path.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    read = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if not isinstance(target, ast.Name) or target.id in _FILLED_LATER:
                continue
            if target.id in read or not target.id.startswith("_"):
                yield target.id, node


def _changes(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield "one more", value + 1
    elif isinstance(value, frozenset):
        yield from ((f"without {one}", value - {one}) for one in sorted(value, key=repr))
    elif type(value) is tuple:
        for n, one in enumerate(value):
            yield f"without {one}", (*value[:n], *value[n + 1 :])
    elif isinstance(value, dict):
        yield from _changed_dicts(value)


def _changed_dicts(value: dict[object, object]) -> Iterator[tuple[str, object]]:
    for key, of_key in value.items():
        shown = getattr(key, "__name__", str(key))
        yield f"without {shown}", {k: v for k, v in value.items() if k != key}
        for what, faulty in _changes(of_key):
            yield f"{shown}: {what}", {**value, key: faulty}
