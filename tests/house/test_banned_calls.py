"""The bans that hold even where ruff's TID251 is off (tests, telemetry, the clock's neighbours)."""

import ast

from tests.house.source import Module, modules

BANNED = {
    ("asyncio", "gather"): "use asyncio.TaskGroup",
    ("asyncio", "create_task"): "use asyncio.TaskGroup",
    ("asyncio", "ensure_future"): "use asyncio.TaskGroup",
    ("asyncio", "wait_for"): "use asyncio.timeout",
    ("datetime", "utcnow"): "naive; use app.runtime.clock, in tests datetime.now(UTC)",
}
NOW = ("datetime", "now")
SDK = "opentelemetry.sdk"


def test_banned_calls_appear_nowhere() -> None:
    found = {
        module.where(node): reason
        for top in ("app", "tests", "migrations")
        for module in modules(top)
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        for reason in [BANNED.get(_last_two(node))]
        if reason and not _excused(module, node)
    }
    assert found == {}


def test_only_the_clock_asks_for_the_time() -> None:
    found = [
        m.where(n)
        for m in modules()
        if m.name != "app.runtime.clock"
        for n in m.nodes
        if isinstance(n, ast.Attribute) and _last_two(n) == NOW and not _excused(m, n)
    ]
    assert found == []


def test_only_telemetry_knows_the_sdk() -> None:
    found = [
        m.where(n)
        for m in modules()
        if not m.name.startswith("app.telemetry")
        for n in m.nodes
        if (isinstance(n, ast.ImportFrom) and (n.module or "").startswith(SDK))
        or (isinstance(n, ast.Import) and any(a.name.startswith(SDK) for a in n.names))
    ]
    assert found == []


def _last_two(node: ast.Attribute) -> tuple[str, str]:
    before = node.value
    name = before.id if isinstance(before, ast.Name) else getattr(before, "attr", "")
    return name, node.attr


def _excused(module: Module, node: ast.Attribute) -> bool:
    """The line says `noqa: TID251`, with its reason, as ruff would want it."""
    return "TID251" in module.text.splitlines()[node.lineno - 1]
