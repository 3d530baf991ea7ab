"""docs/writes.md lists every statement that changes a session, and no other exists."""

import ast
import re
from collections.abc import Iterator

from tests.house.source import ROOT, Module, modules

WRITES = re.compile(
    r"\b(insert\s+into|update(?:\s+only)?|delete\s+from(?:\s+only)?|truncate|merge\s+into|copy)"
    r"\s+(?:table\s+)?\"?(sessions|events|inbox)\b",
    re.IGNORECASE,
)
ROW = re.compile(r"^\| `([a-z]+\.[A-Z_]+)` \|", re.MULTILINE)


def test_every_statement_that_writes_a_session_is_documented() -> None:
    documented = ROW.findall((ROOT / "docs" / "writes.md").read_text())
    assert len(documented) == len(set(documented))
    assert sorted(documented) == sorted(set(_statements()))


def test_the_tables_are_not_written_by_another_way() -> None:
    """The SQLAlchemy tables are for migrations; nothing in app/ builds statements from them."""
    importers = [m.name for m in modules() if "app.storage.schema" in m.text]
    assert importers == []


def test_the_search_knows_a_write_when_it_sees_one() -> None:
    seen = [
        "update sessions s set x",
        "INSERT  INTO\n events",
        "delete from inbox",
        "truncate events",
    ]
    assert all(WRITES.search(text) for text in seen)
    assert not WRITES.search("for update of s; select from sessions; update workers")


def _statements() -> Iterator[str]:
    """`module.NAME` of each constant that holds a write; where one has no name, its place."""
    for module in modules():
        named: set[int] = set()
        for node in module.tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                named |= {id(child) for child in ast.walk(node)}
                if WRITES.search(_text(node)):
                    yield f"{module.name.rpartition('.')[2]}.{node.target.id}"
        yield from _unnamed(module, named)


def _unnamed(module: Module, named: set[int]) -> Iterator[str]:
    documents = {id(d.value) for d in module.nodes if isinstance(d, ast.Expr)}
    for node in module.nodes:
        text = node.value if isinstance(node, ast.Constant) else None
        if not isinstance(text, str) or id(node) in named | documents:
            continue
        if WRITES.search(text):
            yield module.where(node)  # type: ignore[arg-type]


def _text(node: ast.AST) -> str:
    """The text of all constants below a node, in their order."""
    return " ".join(
        child.value
        for child in ast.walk(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
    )
