"""The source of app/ as the house tests look at it: text and syntax trees, read once."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """The tree, walked once for all tests."""

    @property
    def name(self) -> str:
        """Its dotted name."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> int:
        """How long it is."""
        return len(self.text.splitlines())

    def where(self, node: ast.stmt | ast.expr | ast.ExceptHandler) -> str:
        """`path:line`, for a message."""
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"

    def functions(self) -> Iterator[FunctionNode]:
        """Every function and method, nested ones too."""
        for node in self.nodes:
            if isinstance(node, FunctionNode):
                yield node


def budget(over: object, limit: str) -> None:
    """Fail when something is over a budget."""
    if over:
        pytest.fail(f"{limit}: {over}")


@functools.cache
def modules(top: str = "app") -> tuple[Module, ...]:
    """All modules below a folder at the top of the repository."""
    return tuple(
        Module(path, text, tree, tuple(ast.walk(tree)))
        for path in sorted((ROOT / top).rglob("*.py"))
        for text in [path.read_text()]
        for tree in [ast.parse(text)]
    )


def percentile(values: list[int], share: float) -> int:
    """The smallest value that at least this share of the values do not exceed (nearest rank)."""
    if not values:
        return 0
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * round(share * 100) // 100))
    return ordered[rank - 1]
