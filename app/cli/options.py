"""What several commands take: the service's address, the limits of a turn, how to show it."""

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from app.cli.client import Service
from app.cli.outcome import CliError


@dataclass(frozen=True, slots=True)
class Target:
    """Which service the commands speak to."""

    url: str
    api_key: str | None

    def connect(self) -> Service:
        """Return a client for it."""
        return Service(url=self.url, api_key=self.api_key)


_LIMITS = "Limits"

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id (ses_…).")]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow/--no-follow",
        "-f",
        help="Show phases, model calls with tokens, tool calls and text as they happen.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="JSON: with --follow a line an event, then the session."),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Say it and do not wait for what comes of it.")
]
OneJson = Annotated[bool, typer.Option("--json", help="Write it as one JSON object.")]
MaxSteps = Annotated[
    int | None, typer.Option(min=1, max=100, help="Most steps of a turn.", rich_help_panel=_LIMITS)
]
TokenBudget = Annotated[
    int | None, typer.Option(min=1, help="Most tokens of a turn.", rich_help_panel=_LIMITS)
]
MaxCost = Annotated[
    float | None, typer.Option(min=0, help="Most money of a turn.", rich_help_panel=_LIMITS)
]
TotalTimeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Longest active time.", rich_help_panel=_LIMITS),
]


def limits_body(
    *,
    max_steps: int | None,
    token_budget: int | None,
    max_cost: float | None,
    total_timeout: float | None,
) -> dict[str, object]:
    """Return the limits that were given, in the API's names."""
    given = {
        "max_steps": max_steps,
        "token_budget": token_budget,
        "max_cost": max_cost,
        "total_timeout_s": total_timeout,
    }
    return {name: value for name, value in given.items() if value is not None}


def target(context: typer.Context) -> Target:
    """Return the service that the options before the command's name say."""
    found = context.find_object(Target)
    if found is None:
        raise AssertionError("the root command sets it before any command runs")
    return found


def json_of(option: str, given: str) -> object:
    """Return the JSON that an option was given.

    Raises:
        CliError: when it is none.

    """
    try:
        return json.loads(given)
    except ValueError:
        todo = f"A text wants quotes inside: {option} '\"paid\"'"
        raise CliError(f"{option} is not JSON.", todo=todo) from None
