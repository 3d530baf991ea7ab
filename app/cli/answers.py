"""`approvals`, `approve`, `deny`, `result`, `tell`, `fork`: what people say to sessions."""

from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from app.cli.client import Service
from app.cli.options import AsJson, Detach, Follow, OneJson, SessionId, json_of, target
from app.cli.outcome import EXIT_CODES, CliError
from app.cli.sessions import path_of, watch, words_of
from app.cli.values import Record, brief, clean, compact, integer, moment, text
from app.cli.views import console_for_output, note, write_line

ApprovalId = Annotated[str, typer.Argument(metavar="APR", help="The approval's id (apr_…).")]
Message = Annotated[str | None, typer.Option(help="Why; the model is told when it is denied.")]
_ALIVE: Final = frozenset({"queued", "running"})


class WhenBusy(StrEnum):
    """What a message does to a turn that runs."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    STEER = "steer"


def approvals(
    context: typer.Context,
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Everything this session ever asked for.")
    ] = None,
    as_json: OneJson = False,
) -> None:
    """List the calls that wait for an approval."""
    only = None if session is None else {"session": session}
    with target(context).connect() as service:
        found = list(service.pages("/v1/approvals", only=only))
    if as_json:
        write_line(console_for_output(), compact(found))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("approval", "status", "until", "call"):
        table.add_column(title, no_wrap=title != "call")
    for one in found:
        call = f"{brief(one.get('name'), 64)} {brief(one.get('arguments'))}"
        cells = brief(one.get("id"), 80), brief(one.get("status"), 20)
        table.add_row(*map(Text, (*cells, clean(moment(one.get("expires_at"))), call)))
    console_for_output().print(table)


def approve(
    context: typer.Context,
    approval_id: ApprovalId,
    *,
    message: Message = None,
    arguments: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Make the call with these arguments instead."),
    ] = None,
    seen: Annotated[
        str | None,
        typer.Option("--hash", help="Only if it is for the arguments with this hash."),
    ] = None,
    detach: Detach = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Allow a call, and wait for what comes of it."""
    body = _given(decision="approve", message=message, hash=seen)
    if arguments is not None:
        body["arguments"] = json_of("--arguments", arguments)
    with target(context).connect() as service:
        _decide(service, approval_id, body, detach=detach, shown=follow, as_json=as_json)


def deny(
    context: typer.Context,
    approval_id: ApprovalId,
    *,
    message: Message = None,
    detach: Detach = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a call, and wait for what the session does instead."""
    body = _given(decision="deny", message=message)
    with target(context).connect() as service:
        _decide(service, approval_id, body, detach=detach, shown=follow, as_json=as_json)


def _decide(
    service: Service,
    approval_id: str,
    body: dict[str, object],
    *,
    detach: bool,
    shown: bool,
    as_json: bool,
) -> None:
    if not approval_id.replace("_", "").isalnum():
        raise CliError(
            f"{approval_id!r} is no approval id.", todo="Ids look like apr_0198…_t1_c1_1."
        )
    path = f"/v1/approvals/{approval_id}"
    session = service.get(path_of(text(service.get(path).get("session_id"))))
    decided = service.post(path, body)
    if detach:
        said = f"{clean(text(decided.get('id')))} {brief(decided.get('status'), 20)}"
        write_line(console_for_output(), compact(decided) if as_json else said)
    else:
        _go_on(service, session, shown=shown, as_json=as_json)


def result(
    context: typer.Context,
    session_id: SessionId,
    call_id: Annotated[str, typer.Argument(metavar="CALL", help="The call you carried out.")],
    *,
    output: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the call returned.")
    ] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it failed.")] = None,
    detach: Detach = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Give the result of a call that the session left to you, and go on with it."""
    if (output is None) == (error is None):
        raise CliError(
            "Give either --output or --error.", todo="--output wants JSON, --error text."
        )
    body = _given(call_id=call_id, error=error)
    if output is not None:
        body["output"] = json_of("--output", output)
    with target(context).connect() as service:
        session = service.get(path_of(session_id))
        given = service.post(f"{path_of(session_id)}/tool_results", body)
        if detach:
            _say_status(given, as_json=as_json)
        else:
            _go_on(service, session, shown=follow, as_json=as_json)


def tell(
    context: typer.Context,
    session_id: SessionId,
    words: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; `-` reads it from standard input.")
    ],
    *,
    when_busy: Annotated[
        WhenBusy, typer.Option(help="What it does to a turn that runs.")
    ] = WhenBusy.REJECT,
    detach: Detach = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Send a session the next message: the answer it waits for, a new turn, or a word meanwhile."""
    said = words_of(words, what="text", example='surefoot tell ID "…"')
    with target(context).connect() as service:
        session = service.get(path_of(session_id))
        body = {"text": said, "when_busy": when_busy.value}
        receipt = service.post(f"{path_of(session_id)}/messages", body)
        became = brief(receipt.get("receipt"), 20)
        if detach:
            write_line(console_for_output(), compact(receipt) if as_json else became)
            return
        if became != "started":
            note(f"The message is {became}.")
        _go_on(service, session, shown=follow, as_json=as_json)


def fork(
    context: typer.Context,
    session_id: SessionId,
    *,
    at: Annotated[int, typer.Option(min=1, metavar="SEQ", help="The last event to take over.")],
    task: Annotated[str | None, typer.Option(help="Go on with this instead.")] = None,
    model: Annotated[str | None, typer.Option(help="Another model from there on.")] = None,
    detach: Detach = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Start a new session from an event of this one, and wait for its end."""
    body = _given(at_seq=at, task=task, model=model)
    with target(context).connect() as service:
        made = service.post(f"{path_of(session_id)}/fork", body)
        if detach or text(made.get("status")) not in _ALIVE:
            shown = compact(made) if as_json else clean(text(made.get("id")))
            write_line(console_for_output(), shown)
            return
        if not follow and not as_json:
            note(f"Forked into {clean(text(made.get('id')))}.")
        _go_on(service, made, shown=follow, as_json=as_json)


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _say_status(session: Record, *, as_json: bool) -> None:
    said = f"{clean(text(session.get('id')))} {brief(session.get('status'), 20)}"
    write_line(console_for_output(), compact(session) if as_json else said)


def _go_on(service: Service, session: Record, *, shown: bool, as_json: bool) -> None:
    """Watch a session from where it was when it was spoken to."""
    watch(service, session, after=integer(session.get("last_seq")), shown=shown, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(approvals)
    for watching in (approve, deny, result, tell, fork):
        app.command(epilog=EXIT_CODES)(watching)
