"""`dev`, `serve`, `migrate`, `fsck`, `settings`: what runs in this process instead of over HTTP."""

import importlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from app.cli.options import OneJson
from app.cli.outcome import CliError
from app.cli.values import Record, compact, record, text
from app.cli.views import console_for_output, note, write_line

_OF_THE_CLIENT: Final = """\
Not settings of the service, but read from the environment too:
  SUREFOOT_CONFIG   a file of settings (TOML, YAML or JSON), below the environment
  SUREFOOT_URL      the service that the command line speaks to
  SUREFOOT_API_KEY  the key that the command line sends"""


class Role(StrEnum):
    """What a process of the service does."""

    ALL = "all"
    API = "api"
    WORKER = "worker"


def _run(name: str, *args: object, module: str = "app.main", **options: object) -> typer.Exit:
    """Run a function of a server process and return how to leave with its code.

    The one place of the command line that imports late: the service takes several times longer to
    import than `surefoot --help` or a `run` against a server elsewhere should take.
    """
    found: Callable[..., int] = getattr(importlib.import_module(module), name)
    wrong: type[Exception] = importlib.import_module("app.settings").SettingsError
    try:
        return typer.Exit(found(*args, **options))
    except wrong as error:
        todo = getattr(error, "todo", "`surefoot settings` shows what is set.")
        raise CliError(str(error), todo=todo) from None


def dev(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the data goes; else .surefoot/.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to bind.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; else 8080.")] = None,
) -> None:
    """Run everything here: embedded Postgres and Valkey, migrations, API and worker."""
    raise _run("dev", data, host, port)


def serve(
    role: Annotated[Role, typer.Option(help="What this process does.")] = Role.ALL,
) -> None:
    """Run the service on given servers (SUREFOOT_DATABASE_URL, SUREFOOT_REDIS_URL)."""
    if role is Role.WORKER:
        raise _run("serve", module="app.worker")
    raise _run("serve", role.value)


def migrate() -> None:
    """Bring the database at SUREFOOT_DATABASE_URL to the newest schema."""
    raise _run("migrate")


def fsck(
    *,
    session: Annotated[
        str | None, typer.Option(metavar="SES", help="Look at this session only.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what the database shows without keys.")
    ] = False,
    as_json: OneJson = False,
) -> None:
    """Check every session in the database; say what does not hold and what to do. 1 if any."""
    raise _run("fsck", session, module="app.bootstrap.fsck", as_json=as_json, quick=quick)


def settings(*, as_json: OneJson = False) -> None:
    """Show every setting, its value and where it comes from; secrets as asterisks."""
    room = importlib.import_module("app.settings")
    try:
        loaded = room.load()
    except room.SettingsError as error:
        raise CliError(
            str(error), todo="`surefoot settings` shows them all once they load."
        ) from None
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    shown: Record = room.masked(loaded)
    if as_json:
        write_line(console_for_output(), compact(shown))
    else:
        console_for_output().print(_table(shown))
        note(_OF_THE_CLIENT)


def _table(shown: Record) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("setting", "value", "from"):
        table.add_column(title, overflow="fold")
    for name, item in shown.items():
        entry = record(item)
        cells = name, text(entry.get("value")), text(entry.get("source"))
        table.add_row(*map(Text, cells))
    return table


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (dev, serve, migrate, fsck, settings):
        app.command()(command)
