"""The size budgets: numbers measured on code bases that stay readable (CONTRIBUTING.md)."""

import ast

from tests.house.source import ROOT, budget, modules, percentile

FILE_P95, FILE_MAX = 300, 400
FUNCTION_P95, FUNCTION_MAX = 40, 60
ANY_PER_1000, EXCEPT_PER_1000 = 3.0, 0.5
RATIO_MIN, RATIO_MAX = 1.0, 2.0


def test_no_file_is_long() -> None:
    sizes = {str(m.path.relative_to(ROOT)): m.lines for m in modules()}
    budget({p: n for p, n in sizes.items() if n > FILE_MAX}, f"files have {FILE_MAX} lines")


def test_files_are_short() -> None:
    found = percentile([m.lines for m in modules()], 0.95)
    budget(found if found > FILE_P95 else 0, f"95 % of the files have {FILE_P95} lines")


def test_no_function_is_long() -> None:
    longer = {f: n for f, n in _functions().items() if n > FUNCTION_MAX}
    budget(longer, f"functions have {FUNCTION_MAX} lines")


def test_functions_are_short() -> None:
    found = percentile(list(_functions().values()), 0.95)
    longest = dict(sorted(_functions().items(), key=lambda item: -item[1])[:10])
    budget(longest if found > FUNCTION_P95 else {}, f"95 % have {FUNCTION_P95} lines")


def test_any_is_rare() -> None:
    found = [
        m.where(n)
        for m in modules()
        for n in m.nodes
        if (isinstance(n, ast.Name) and n.id == "Any")
        or (isinstance(n, ast.Attribute) and n.attr == "Any")
    ]
    assert len(found) <= ANY_PER_1000 * _total_lines() / 1000, found


def test_broad_excepts_are_rare_and_explained() -> None:
    found = [(m, n) for m in modules() for n in m.nodes if _is_broad(n)]
    without_reason = [
        m.where(n)
        for m, n in found
        if isinstance(n, ast.ExceptHandler) and not _has_reason(m.text.splitlines(), n.lineno)
    ]
    assert without_reason == [], "say on the line, or right above it, why everything is caught"
    # The first one is free: half of one per thousand lines would forbid it in a small tree.
    assert len(found) <= max(1.0, EXCEPT_PER_1000 * _total_lines() / 1000)


def test_tests_are_one_to_two_times_the_source() -> None:
    ratio = sum(m.lines for m in modules("tests")) / _total_lines()
    assert RATIO_MIN <= ratio <= RATIO_MAX


def _functions() -> dict[str, int]:
    return {
        f"{m.where(f)} {f.name}": (f.end_lineno or f.lineno) - f.lineno + 1
        for m in modules()
        for f in m.functions()
    }


def _total_lines() -> int:
    return sum(m.lines for m in modules())


def _is_broad(node: ast.AST) -> bool:
    """Whether it catches everything and keeps it; cleaning up and raising on catches nothing."""
    if not isinstance(node, ast.ExceptHandler) or _raises_on(node):
        return False
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    names = {c.id for c in caught if isinstance(c, ast.Name)}
    return node.type is None or bool(names & {"Exception", "BaseException"})


def _raises_on(node: ast.ExceptHandler) -> bool:
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _has_reason(lines: list[str], lineno: int) -> bool:
    """A comment of words (a bare `noqa` is none) on the line of the `except`, above or below it."""
    for line in lines[max(0, lineno - 2) : lineno + 1]:
        comment = line.partition("#")[2].strip()
        if comment.startswith("noqa"):
            comment = comment.partition(" - ")[2]
        if len(comment.split()) >= 3:
            return True
    return False
