"""No module imports itself by way of others, however the import is written."""

import ast

from tests.house.source import Module, modules


def test_there_is_no_knot() -> None:
    """Imports under TYPE_CHECKING and inside functions count."""
    names = {m.name for m in modules()}
    graph = {m.name: _imports(m, names) - {m.name} for m in modules()}
    # Take away what imports nothing any more, and what nobody imports any more; a loop stays.
    while True:
        imported = set().union(*graph.values()) if graph else set()
        kept = {n: i & graph.keys() for n, i in graph.items() if i & graph.keys() and n in imported}
        if kept == graph:
            break
        graph = kept
    assert graph == {}


def test_the_core_has_nothing_asynchronous() -> None:
    found = [
        m.where(n)
        for m in modules()
        if m.name == "app.core" or m.name.startswith("app.core.")
        for n in m.nodes
        if isinstance(n, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await)
    ]
    assert found == []


def _imports(module: Module, names: set[str]) -> set[str]:
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in names else node.module
                for a in node.names
            }
    return found & names
