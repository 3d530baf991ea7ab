"""The page at /docs: every operation of the document, in one file that needs no network."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final, cast

from app.api.wire.routing import Document

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;
background:#fff}
details{border:1px solid #ccc;border-radius:4px;margin:.5rem 0;padding:.5rem .75rem}
summary{cursor:pointer}code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:#f6f6f6;padding:.5rem;overflow:auto}
.m{display:inline-block;min-width:4rem;font-weight:600}table{border-collapse:collapse}
td,th{text-align:left;padding:.15rem .75rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre{background:#242424}
details{border-color:#444}}
"""


def render(document: Document) -> bytes:
    """Return the page for a document."""
    info = _map(document["info"])
    title = escape(f"{info['title']} {info['version']}")
    schemas = _map(_map(document.get("components")).get("schemas"))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
        f"<p>{escape(str(info.get('description', '')))}",
        "<p>The document itself: <a href='/openapi.json'>/openapi.json</a>",
        *_operations(_map(document["paths"])),
        "<h2>Schemas</h2>",
        *(
            f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
            f"{_json(schema)}</details>"
            for name, schema in schemas.items()
        ),
        "</html>",
    ]
    return "\n".join(parts).encode()


def _operations(paths: Mapping[str, object]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in paths.items():
        for method, operation in _map(methods).items():
            found = _map(operation)
            tags = cast("list[str]", found.get("tags") or ["other"])
            by_tag.setdefault(tags[0], []).append(_operation(method, path, found))
    for tag, operations in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from operations


def _operation(method: str, path: str, operation: Mapping[str, object]) -> str:
    return (
        f"<details id='{escape(str(operation['operationId']))}'><summary>"
        f"<span class=m>{method.upper()}</span> <code>{escape(path)}</code> "
        f"{escape(str(operation.get('summary', '')))}</summary>"
        f"<p>{escape(str(operation.get('description', '')))}"
        f"{_parameters(operation)}{_body(operation)}{_responses(operation)}</details>"
    )


def _parameters(operation: Mapping[str, object]) -> str:
    rows = [
        f"<tr><td><code>{escape(str(found['name']))}</code><td>{escape(str(found['in']))}"
        f"<td>{escape(str(found.get('description', '')))}"
        for found in map(_map, cast("list[object]", operation.get("parameters") or []))
    ]
    return f"<h3>Parameters</h3><table>{''.join(rows)}</table>" if rows else ""


def _body(operation: Mapping[str, object]) -> str:
    content = _map(_map(operation.get("requestBody")).get("content"))
    return f"<h3>Body</h3>{''.join(_schema(kind, content[kind]) for kind in content)}" * bool(
        content
    )


def _responses(operation: Mapping[str, object]) -> str:
    rows = []
    for status, response in _map(operation["responses"]).items():
        found = _map(response)
        content = _map(found.get("content"))
        shown = "".join(_schema(kind, content[kind]) for kind in content)
        rows.append(f"<tr><td>{status}<td>{escape(str(found.get('description', '')))}<td>{shown}")
    return f"<h3>Answers</h3><table>{''.join(rows)}</table>"


def _schema(kind: str, media: object) -> str:
    schema = _map(_map(media).get("schema"))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    link = f" <a href='#{escape(name)}'>{escape(name)}</a>" if name else ""
    return f"<code>{escape(kind)}</code>{link}<br>"


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _map(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
