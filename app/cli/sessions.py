"""`run`, `resume`, `verify`, `trace`, `cancel`: sessions, over HTTP."""

import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from app.cli.client import Service, command
from app.cli.follow import advice, follow, report
from app.cli.lines import outcome_line
from app.cli.options import (
    AsJson,
    Follow,
    MaxCost,
    MaxSteps,
    OneJson,
    SessionId,
    TokenBudget,
    TotalTimeout,
    json_of,
    limits_body,
    target,
)
from app.cli.outcome import EXIT_CODES, CliError, Exit
from app.cli.tree import print_trace
from app.cli.values import Record, brief, clean, compact, integer, record, text
from app.cli.views import console_for_output, note, open_view, write_line

Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="NAME", help="A tool it may use; again for more. Else all."),
]


class Happened(StrEnum):
    """What a person found out about a call in doubt."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="What to do; `-` reads it from standard input.")],
    *,
    tool: Tools = None,
    model: Annotated[str | None, typer.Option(help="Another model than the agent's.")] = None,
    agent: Annotated[str | None, typer.Option(help="Another agent than `default`.")] = None,
    max_steps: MaxSteps = None,
    token_budget: TokenBudget = None,
    max_cost: MaxCost = None,
    total_timeout: TotalTimeout = None,
    follow: Follow = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Write the session's id and do not wait.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a session with a task, wait for its end, and write the answer."""
    limits = limits_body(
        max_steps=max_steps,
        token_budget=token_budget,
        max_cost=max_cost,
        total_timeout=total_timeout,
    )
    given = {
        "task": words_of(task),
        "tools": tool,
        "model": model,
        "agent": agent,
        "limits": limits,
    }
    body = {name: value for name, value in given.items() if value}
    with target(context).connect() as service:
        session = service.post("/v1/sessions", body)
        if detach:
            shown = compact(session) if as_json else clean(text(session.get("id")))
            write_line(console_for_output(), shown)
            return
        watch(service, session, after=0, shown=follow, as_json=as_json)


def resume(
    context: typer.Context,
    session_id: SessionId,
    *,
    max_steps: MaxSteps = None,
    token_budget: TokenBudget = None,
    max_cost: MaxCost = None,
    total_timeout: TotalTimeout = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a stopped, failed or interrupted session, where it is."""
    limits = limits_body(
        max_steps=max_steps,
        token_budget=token_budget,
        max_cost=max_cost,
        total_timeout=total_timeout,
    )
    with target(context).connect() as service:
        session = service.get(path_of(session_id))
        service.post(f"{path_of(session_id)}/resume", {"limits": limits} if limits else {})
        after = integer(session.get("last_seq"))
        watch(service, session, after=after, shown=follow, as_json=as_json)


def trace(context: typer.Context, session_id: SessionId, *, as_json: OneJson = False) -> None:
    """Show everything a session did: its turns and steps as a tree, tokens as a table."""
    console = console_for_output()
    with target(context).connect() as service:
        session = service.get(path_of(session_id))
        events = list(service.pages(f"{path_of(session_id)}/events", after=0))
    if as_json:
        write_line(console, compact({"session": session, "events": events}))
    else:
        print_trace(console, session, events)


def cancel(context: typer.Context, session_id: SessionId, *, as_json: OneJson = False) -> None:
    """Cancel what a session is doing, and wait until it has settled."""
    console = console_for_output()
    with target(context).connect() as service:
        session = service.post(f"{path_of(session_id)}/cancel", {})
    if as_json:
        write_line(console, compact(session))
    else:
        status, reason = text(session.get("status")), text(session.get("stop_reason"))
        console.print(Text(f"{session_id} ") + outcome_line(status, reason))


def verify(
    context: typer.Context,
    session_id: SessionId,
    call_id: Annotated[str, typer.Argument(metavar="CALL_ID", help="The call in doubt.")],
    outcome: Annotated[Happened, typer.Argument(help="What became of it.")],
    *,
    output: Annotated[
        str | None, typer.Option(metavar="JSON", help="What it returned, where that is known.")
    ] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a call of unknown outcome happened, and go on with the session."""
    body: dict[str, object] = {"call_id": call_id, "outcome": outcome.value}
    if output is not None:
        body["output"] = json_of("--output", output)
    with target(context).connect() as service:
        session = service.get(path_of(session_id))
        service.post(f"{path_of(session_id)}/verifications", body)
        after = integer(session.get("last_seq"))
        watch(service, session, after=after, shown=follow, as_json=as_json)


def watch(service: Service, session: Record, *, after: int, shown: bool, as_json: bool) -> None:
    """Show a session until it rests, write its result, and end with the code that says it."""
    console = console_for_output()
    session_id = clean(text(session.get("id")))
    if not session_id:
        raise CliError(
            "The answer names no session.",
            todo="Check that SUREFOOT_URL is the address of a Surefoot service.",
        )
    if shown and not as_json:
        console.print(Text(f"session {session_id}", style="bold") + _pinned(session))
    try:
        with open_view(console, follow=shown, as_json=as_json) as view:
            followed = follow(service, session_id, after=after, view=view)
    except KeyboardInterrupt:
        note(
            f"No longer watching; {session_id} goes on. See it with `{command(service.url)} trace "
            f"{session_id}`, end it with `{command(service.url)} cancel {session_id}`."
        )
        raise typer.Exit(Exit.INTERRUPTED) from None
    report(console, followed, follow=shown, as_json=as_json)
    if hint := advice(followed, service, follow=shown or as_json):
        note(hint)
    raise typer.Exit(followed.exit_code)


def _pinned(session: Record) -> Text:
    agent = record(session.get("agent"))
    parts = [
        f"agent {brief(agent.get('name'), 64)} v{integer(agent.get('version'))}" if agent else "",
        f"model {brief(session.get('model'), 64)}" if session.get("model") else "",
    ]
    return Text("".join(f" · {part}" for part in parts if part), style="dim")


def path_of(session_id: str) -> str:
    """Return a session's path; an id that would change the path is no id."""
    if not session_id.replace("_", "").replace("-", "").isalnum():
        raise CliError(f"{session_id!r} is no session id.", todo="Ids look like ses_0198….")
    return f"/v1/sessions/{session_id}"


def words_of(given: str, *, what: str = "task", example: str = 'surefoot run "…"') -> str:
    """Return what the user wants to say; `-` stands for standard input."""
    words = sys.stdin.read() if given == "-" else given
    if not words.strip():
        raise CliError(f"The {what} is empty.", todo=f"Say what to do: {example}")
    return words


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for watching in (run, resume, verify):
        app.command(epilog=EXIT_CODES)(watching)
    app.command()(trace)
    app.command()(cancel)
