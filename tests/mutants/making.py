"""Writes the mutants of a room: mutmut puts all those of a function beside it, chosen at run time.

So one process holds every mutant, and trying one needs no new import of anything.
"""

import ast
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Final

from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents

from tests.mutants.rooms import ROOT, Room

_COPIED: Final = ("app", "tests", "migrations", "docs", "pyproject.toml")
_DEF: Final = re.compile(r"^\s*(async )?def ")
_NAME: Final = re.compile(r"x[_ǁ]\w+__mutmut_\w+")
_TEXT: Final = re.compile(r"\"[^\"]* [^\"]*\"|'[^']* [^']*'")
_SAID: Final = re.compile(r"^\s*(message|detail|error|why) = |raise \w+\(|\.log\(")
_NEVER: Final = re.compile(r"assert_never\(|^\s*case _:$")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function."""

    name: str
    path: str
    line: int
    diff: str
    digest: str

    @property
    def function(self) -> str:
        """The key under which mutmut notes who calls the function."""
        return self.name.partition("__mutmut_")[0]


def prepare(room: Room, files: tuple[str, ...]) -> list[Mutant]:
    """Copy the tree and mutate these files in the copy; return their mutants."""
    for name in _COPIED:
        copied(ROOT / name, room.place / name)
    found = [mutant for path in files for mutant in _mutate(room.place, path)]
    write(room.place, found)
    (room.place / "files.json").write_text(json.dumps(files))
    return found


def write(place: Path, mutants: list[Mutant]) -> None:
    """Keep what there is to try."""
    (place / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in mutants]))


def listed(place: Path) -> list[Mutant]:
    """Return what there is to try."""
    return [Mutant(**fields) for fields in json.loads((place / "mutants.json").read_text())]


def copied(source: Path, target: Path) -> None:
    """Make a file or a folder what it is in the tree."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def _mutate(place: Path, path: str) -> Iterator[Mutant]:
    source = (ROOT / path).read_text()
    made = mutate_file_contents(path, _plain_properties(source))
    (place / path).write_text(made.code)
    starts = _starts(ast.parse(source))
    for name in made.mutant_names:
        before, after = _sources(made, name)
        if before == after or _only_text(before, after):
            continue
        line = starts[name.partition("__mutmut_")[0]] + _first_change(before, after)
        digest = hashlib.sha256("\n".join([path, *before, "", *after]).encode()).hexdigest()[:16]
        diff = "\n".join(list(unified_diff(before, after, n=1, lineterm=""))[3:])
        yield Mutant(f"{module_of(path)}.{name}", path, line, diff, digest)


def module_of(path: str) -> str:
    """Return the dotted name of a file."""
    return path.removesuffix(".py").replace("/", ".")


def _plain_properties(source: str) -> str:
    """Write properties without decorators, which mutmut would leave alone; no line moves up."""
    lines = source.split("\n")
    ends: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and len(node.decorator_list) == 1:
            mark = node.decorator_list[0]
            if isinstance(mark, ast.Name) and mark.id == "property" and node.end_lineno:
                lines[mark.lineno - 1] = ""
                ends.append((node.end_lineno, node.name))
    for end, name in sorted(ends, reverse=True):
        lines.insert(end, f"    {name} = property({name})")
    return "\n".join(lines)


def _starts(tree: ast.Module) -> dict[str, int]:
    """Return the line of each function by the name that mutmut gives it."""
    found: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[f"x_{node.name}"] = node.lineno
        elif isinstance(node, ast.ClassDef):
            methods = [
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            found |= {f"xǁ{node.name}ǁ{m.name}": m.lineno for m in methods}
    return found


def _sources(made: MutatedFile, name: str) -> tuple[list[str], list[str]]:
    """Return the function and its mutant, from their `def` on and without mutmut's names."""
    lines = made.code.split("\n")
    both = []
    for one in (name.partition("__mutmut_")[0] + "__mutmut_orig", name):
        span = made.line_span_by_function_name[one]
        text = lines[span.start - 1 : span.end]
        first = next(n for n, line in enumerate(text) if _DEF.match(line))
        both.append([_NAME.sub(_shown(one), text[first]), *text[first + 1 :]])
    return both[0], both[1]


def _shown(name: str) -> str:
    return name.partition("__mutmut_")[0].rpartition("ǁ")[2].removeprefix("x_")


def _first_change(before: list[str], after: list[str]) -> int:
    pairs = zip(before, after, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(before) - 1)


def _only_text(before: list[str], after: list[str]) -> bool:
    """Return whether only words for people change, or what never runs, or the case of letters.

    A string in other letters is noticed by whoever notices it with letters added, which is a mutant
    too.
    """
    at = _first_change(before, after)
    old, new = before[at], after[at] if at < len(after) else ""
    if old.lower() == new.lower() or _SAID.search(old) or _NEVER.search(old):
        return True
    return _TEXT.sub("", old) == _TEXT.sub("", new)
