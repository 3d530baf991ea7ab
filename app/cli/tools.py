"""`tools add`, `tools list`: the registry, over HTTP."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml
from rich.table import Table
from rich.text import Text

from app.cli.client import Service
from app.cli.options import OneJson, target
from app.cli.outcome import CliError, Exit, ServiceError
from app.cli.values import Record, brief, clean, compact, integer, record, records, text
from app.cli.views import console_for_output, note, write_line

tools = typer.Typer(help="Register and list tools.", no_args_is_help=True)
_CONFLICT: Final = 409


@tools.command()
def add(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON or YAML: one tool, or a list; `-` is stdin.")
    ],
    *,
    update: Annotated[
        bool, typer.Option("--update", help="Make a new version of a tool that exists.")
    ] = False,
) -> None:
    """Register the tools of a file; each is reported, and one that fails does not stop the rest."""
    console = console_for_output()
    bodies = read_tools(file)
    failed = 0
    with target(context).connect() as service:
        for body in bodies:
            name = brief(body["name"], 64)
            try:
                answer, done = _put_or_post(service, body, update=update)
            except ServiceError as error:
                failed += 1
                note(f"{name}: {error}")
            else:
                console.print(Text(f"{name}: {done}{_lint(answer)}"))
    if failed:
        raise typer.Exit(Exit.USAGE)


@tools.command("list")
def list_tools(context: typer.Context, *, as_json: OneJson = False) -> None:
    """List the tools of the service."""
    console = console_for_output()
    with target(context).connect() as service:
        found = list(service.pages("/v1/tools"))
    if as_json:
        write_line(console, compact(found))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("name", "kind", "effect", "version", "description"):
        table.add_column(title, no_wrap=title != "description")
    for tool in found:
        cells = [brief(tool.get(key), 64) for key in ("name", "kind", "effect", "version")]
        enabled = "" if tool.get("enabled", True) else "(disabled) "
        table.add_row(*map(Text, cells), Text(enabled + brief(tool.get("description"), 120)))
    console.print(table)


def _put_or_post(
    service: Service, body: Mapping[str, object], *, update: bool
) -> tuple[Record, str]:
    try:
        answer = service.post("/v1/tools", body)
    except ServiceError as error:
        if error.status != _CONFLICT or not update:
            if error.status == _CONFLICT:
                error.todo = "Use --update to make a new version of it."
            raise
        name = text(body["name"])
        return service.put(f"/v1/tools/{name}", body), "updated"
    return answer, "added"


def _lint(answer: Record) -> str:
    tool, lint = record(answer.get("tool")), record(answer.get("lint"))
    version = integer(tool.get("version"))
    head = f" (version {version})" if version else ""
    warnings = lint.get("warnings")
    lines = [_warning(w) for w in warnings] if isinstance(warnings, list) else []
    return head + "".join(f"\n  {line}" for line in lines)


def _warning(warning: object) -> str:
    fields = record(warning)
    if not fields:
        return brief(warning, 300)
    pointer = brief(fields.get("pointer"), 100)
    message = brief(fields.get("message") or warning, 300)
    return f"{pointer}: {message}" if pointer else message


def read_tools(name: str) -> list[dict[str, object]]:
    """Return the tools of a file: one, a list, or a list under `tools`.

    Raises:
        CliError: when it cannot be read, or holds something else.

    """
    try:
        content = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        parsed: object = json.loads(content) if name.endswith(".json") else yaml.safe_load(content)
    except OSError as error:
        raise CliError(f"{name} cannot be read: {error.strerror}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise CliError(f"{name} is not well-formed: {clean(str(error))}") from None
    if isinstance(parsed, dict) and isinstance(parsed.get("tools"), list):
        parsed = parsed["tools"]
    found = [parsed] if isinstance(parsed, dict) else parsed
    if not isinstance(found, list) or not found or len(records(found)) != len(found):
        raise CliError(f"{name} holds neither a tool nor a list of tools.")
    for number, tool in enumerate(found, 1):
        _check(name, number, tool)
    return found


def _check(name: str, number: int, tool: dict[str, object]) -> None:
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise CliError(f"{name}: tool {number} has no name.")
    try:
        json.dumps(tool, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CliError(
            f"{name}: tool {tool['name']} holds a value that JSON does not have ({error}).",
            todo="YAML reads an unquoted 2025-01-31 as a date: put such values in quotes.",
        ) from None
