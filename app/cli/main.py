"""The `surefoot` command: its tree of commands, and how an error becomes words and a code."""

import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from app.cli import answers, explain, local, sessions
from app.cli.client import DEFAULT_URL
from app.cli.options import Target
from app.cli.outcome import EXIT_CODES, CliError
from app.cli.tools import tools

app = typer.Typer(
    name="surefoot",
    help="Durable LLM agent sessions as a self-hosted HTTP service.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"surefoot {version('surefoot')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    url: Annotated[
        str, typer.Option(envvar="SUREFOOT_URL", help="The service that is spoken to.")
    ] = DEFAULT_URL,
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")
    ] = False,
) -> None:
    """Durable LLM agent sessions. The key comes from SUREFOOT_API_KEY, never from an argument."""
    del show_version
    context.obj = Target(url or DEFAULT_URL, os.environ.get("SUREFOOT_API_KEY"))


sessions.register(app)
answers.register(app)
explain.register(app)
app.add_typer(tools, name="tools")
local.register(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that is not UTF-8 gets question marks instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(arguments)
    except CliError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)
    sys.exit(0)


if __name__ == "__main__":
    main()
