"""`why`, `replay`, `audit verify`: what a session did and whether its trail holds, over HTTP."""

from typing import Annotated, Final

import typer
from rich.text import Text

from app.cli.options import OneJson, SessionId, target
from app.cli.outcome import Exit
from app.cli.sessions import path_of
from app.cli.values import Record, brief, clean, compact, integer, record, records, text
from app.cli.views import console_for_output, write_line

audit = typer.Typer(help="Verify the trail.", no_args_is_help=True)
_DETAIL: Final = 300


def why(context: typer.Context, session_id: SessionId, *, as_json: OneJson = False) -> None:
    """Say in sentences why a session is as it is, what wakes it, and what you can do."""
    console = console_for_output()
    with target(context).connect() as service:
        shown = service.get(f"{path_of(session_id)}/why")
    if as_json:
        write_line(console, compact(shown))
        return
    sentences = shown.get("sentences")
    for sentence in sentences if isinstance(sentences, list) else []:
        console.print(Text(clean(text(sentence))))


def replay(context: typer.Context, session_id: SessionId, *, as_json: OneJson = False) -> None:
    """Decide a session again from its journal, offline; the first divergence ends with code 4."""
    console = console_for_output()
    with target(context).connect() as service:
        found = service.post(f"{path_of(session_id)}/replay", {})
    if as_json:
        write_line(console, compact(found))
    else:
        console.print(Text(_replayed(found)))
    if found.get("identical") is not True:
        raise typer.Exit(Exit.FAILED)


def _replayed(found: Record) -> str:
    code = brief(found.get("code_version"), 40)
    if found.get("identical") is True:
        return f"identical: {integer(found.get('events'))} events decided as then, by {code}"
    expected, actual = record(found.get("expected")), record(found.get("actual"))
    return (
        f"diverges at event {integer(found.get('seq'))}, decided by {code}\n"
        f"  expected {_event(expected)}\n  actual   {_event(actual)}"
    )


def _event(event: Record) -> str:
    if not event:
        return "nothing"
    return f"{brief(event.get('type'), 60)} {brief(event.get('data'), _DETAIL)}"


@audit.command()
def verify(
    context: typer.Context,
    session_id: Annotated[
        str | None, typer.Argument(metavar="[SES]", help="One session; else all of them.")
    ] = None,
    *,
    as_json: OneJson = False,
) -> None:
    """Verify hash chains: nothing changed, removed, reordered or cut. Code 4 where one is broken.

    With --json a line for each session.
    """
    console = console_for_output()
    page = "/v1/audit/verify" + ("" if session_id is None else f"?session={session_id}")
    broken = count = 0
    with target(context).connect() as service:
        chains = records(service.get(page).get("data")) if session_id else service.pages(page)
        for chain in chains:
            count += 1
            broken += chain.get("intact") is False
            if as_json:
                write_line(console, compact(chain))
            elif chain.get("intact") is not True:
                console.print(Text(_chain(chain)))
    if not as_json:
        console.print(Text(f"{count} chains, {broken} broken"))
    if broken:
        raise typer.Exit(Exit.FAILED)


def _chain(chain: Record) -> str:
    session_id = brief(chain.get("session"), 80)
    fault = record(chain.get("broken"))
    if not fault:
        return f"{session_id}: not verified: {brief(chain.get('unverified'), _DETAIL)}"
    kind, detail = brief(fault.get("fault"), 20), brief(fault.get("detail"), _DETAIL)
    return f"{session_id}: broken at event {integer(fault.get('seq'))} ({kind}): {detail}"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(why)
    app.command()(replay)
    app.add_typer(audit, name="audit")
