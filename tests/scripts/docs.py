"""Write the generated parts of the docs from the code; a house test holds them against it.

`python -m tests.scripts.docs` writes docs/events.md and the transition diagram in
docs/architecture.md.
"""

import ast
import dataclasses
import enum
import inspect
import itertools
import json
import textwrap
import types
import typing
from pathlib import Path

from app.core import events
from app.core.lifecycle import TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- diagram: generated -->", "<!-- diagram: end -->"


def diagram() -> str:
    """Return the machine's transitions as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for source, targets in TRANSITIONS.items():
        start = "[*]" if source is None else source.value
        lines.extend(f"    {start} --> {target.value}" for target in sorted(targets))
    return "\n".join([*lines, "    DONE --> [*]", "```"])


def events_page() -> str:
    """Return docs/events.md."""
    parts = [
        "# Events",
        "",
        "Every event of a trace, as `GET /v1/sessions/{id}/events` and the stream give it:",
        '`{"seq", "type", "v", "at", "turn", "step", "phase", "data"}`. This page is generated',
        "from `app/core` and is part of the contract: a field is never removed or changed in",
        "meaning without a new `v`, and old versions are lifted when they are read. A field with",
        "a default may be missing in events that were written before there was such a field.",
        "",
    ]
    shown: dict[str, type] = {}
    for kind, body in events.BODIES.items():
        version = body.V
        parts += [f"## `{kind}` (v {version})", "", _doc(body), "", *_table(body, shown)]
    parts += ["# Values inside events", ""]
    done: set[str] = set()
    while pending := [name for name in shown if name not in done]:
        for name in pending:
            done.add(name)
            parts += [f"## {name}", "", _doc(shown[name]), "", *_shape(shown[name], shown)]
    return "\n".join(parts).rstrip() + "\n"


def _doc(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _shape(kind: type, shown: dict[str, type]) -> list[str]:
    if issubclass(kind, enum.Enum):
        return [", ".join(f"`{member.value}`" for member in kind), ""]
    return _table(kind, shown)


def _table(kind: type, shown: dict[str, type]) -> list[str]:
    hints = typing.get_type_hints(kind)
    words = field_words(kind)
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        name, means = _wire_name(kind, field.name), words.get(field.name, "").replace("|", "\\|")
        kinds = _type(hints[field.name], shown)
        rows.append(f"| `{name}` | {kinds} | {_default(field)} | {means} |")
    return [*rows, ""]


def field_words(kind: type) -> dict[str, str]:
    """Return what stands below each field of a class: Python keeps no such text at run time."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    words: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, after in itertools.pairwise(statements):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            words[field.target.id] = " ".join(str(after.value.value).split())
    return words


def _wire_name(kind: type, name: str) -> str:
    renamed = {"source": "from", "target": "to"}
    return renamed.get(name, name) if kind is events.PhaseEntered else name


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default is dataclasses.MISSING:
        return ""
    if isinstance(field.default, enum.Enum):
        return f"`{field.default.value}`"
    if dataclasses.is_dataclass(field.default):
        return "zero"
    if field.default == ():
        return "`[]`"
    return f"`{json.dumps(field.default)}`"


def _type(hint: object, shown: dict[str, type]) -> str:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(_type(part, shown) for part in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"list of {_type(typing.get_args(hint)[0], shown)}"
    if typing.get_origin(hint) is dict:
        return "object"
    return _plain_type(hint, shown) if isinstance(hint, type) else str(hint)


def _plain_type(hint: type, shown: dict[str, type]) -> str:
    plain = {
        str: "string",
        int: "integer",
        float: "number",
        bool: "boolean",
        object: "any JSON",
        type(None): "null",
    }
    if hint in plain:
        return plain[hint]
    shown.setdefault(hint.__name__, hint)
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


def with_diagram(page: str) -> str:
    """Return a page with the diagram between its marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{diagram()}\n{END}{after}"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    architecture = ROOT / "docs" / "architecture.md"
    return {
        ROOT / "docs" / "events.md": events_page(),
        architecture: with_diagram(architecture.read_text(encoding="utf-8")),
    }


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
