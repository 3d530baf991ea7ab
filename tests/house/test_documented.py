"""Everything public says what it is: modules, classes, fields (functions: ruff's D rules)."""

import ast

from tests.house.source import Module, budget, modules

CONTRACT = ("app.core.events", "app.core.step_events", "app.core.values")
"""Modules whose fields clients see, in docs/events.md."""


def test_every_module_has_a_docstring() -> None:
    every = (*modules(), *modules("migrations"))
    without = [m.name for m in every if not ast.get_docstring(m.tree)]
    assert without == []


def test_every_public_class_has_a_docstring() -> None:
    every = [(m, c) for m in modules() for c in _public_classes(m)]
    without = [m.where(c) for m, c in every if not ast.get_docstring(c)]
    assert without == []


def test_every_public_field_is_explained() -> None:
    """Of the values in the contract: by words beside it, or its name in the class's docstring.

    Elsewhere the class says what its fields are where name and type do not (ADR 007).
    """
    without = [
        f"{m.where(field)} {c.name}.{name}"
        for m in modules()
        if m.name in CONTRACT
        for c in _public_classes(m)
        for name, field in _fields(c)
        if not _explained(m, c, name, field)
    ]
    budget(without, f"public fields say what they are, {len(without)} do not")


def _public_classes(module: Module) -> list[ast.ClassDef]:
    return [
        n for n in module.tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")
    ]


def _fields(of: ast.ClassDef) -> list[tuple[str, ast.AnnAssign]]:
    return [
        (n.target.id, n)
        for n in of.body
        if isinstance(n, ast.AnnAssign)
        and isinstance(n.target, ast.Name)
        and not n.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(n.annotation)
    ]


def _explained(module: Module, of: ast.ClassDef, name: str, field: ast.AnnAssign) -> bool:
    after = of.body[of.body.index(field) + 1 :][:1]
    if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant):
        return True
    lines = module.text.splitlines()
    beside = "#" in "".join(lines[field.lineno - 1 : field.end_lineno])
    above = lines[field.lineno - 2].lstrip().startswith("#")
    words = (ast.get_docstring(of) or "").replace("`", " ").replace(":", " ").replace(",", " ")
    return beside or above or name in words.split()
