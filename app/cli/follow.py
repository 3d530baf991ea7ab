"""Following a session until its turn has ended or waits for a person."""

from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from app.cli.client import Service, command
from app.cli.lines import outcome_line, totals
from app.cli.outcome import Exit, exit_for
from app.cli.pending import asked
from app.cli.stream import Item, Journaled, StreamReader
from app.cli.values import Record, brief, clean, compact, record, text
from app.cli.views import View, write_line

_ALIVE: Final = frozenset({"queued", "running"})
_AT_REST: Final = frozenset({"waiting", "closed"})
_TRIES: Final = 20
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Followed:
    """A session at rest, and the end of its turn where there was one."""

    session: Record
    ended: Record | None

    @property
    def status(self) -> str:
        """How the turn ended, or `waiting`; a session closed since then has this turn still."""
        return text((self.ended or self.session).get("status"))

    @property
    def exit_code(self) -> Exit:
        """The code that says so."""
        return exit_for(self.status)


def follow(service: Service, session_id: str, *, after: int, view: View) -> Followed:
    """Show what happens after an event's number until the session rests.

    A stream can end before its turn began: the worker has not yet taken up what the API accepted.
    Then it is asked for again, for some ten seconds.
    """
    path = f"/v1/sessions/{session_id}"
    reader = StreamReader(service, session_id, last=after)
    ended: Record | None = None
    for _ in range(_TRIES):
        for item in reader.items():
            view.show(item)
            ended = _ended(item, ended)
            if _may_wait(item) and text((session := service.get(path)).get("status")) == "waiting":
                return Followed(session, None)
        session = service.get(path)
        status = text(session.get("status"))
        if status not in _ALIVE and (ended is not None or status in _AT_REST):
            break
        service.pause(_PAUSE_S)
    else:
        session = service.get(path)
    return Followed(session, ended)


def _ended(item: Item, before: Record | None) -> Record | None:
    if not isinstance(item, Journaled):
        return before
    match item.event.get("type"):
        case "turn.ended":
            return record(item.event.get("data"))
        case "turn.started":
            return None
        case _:
            return before


def _may_wait(item: Item) -> bool:
    """Return whether the session may wait now: also on, after one of several answers."""
    return isinstance(item, Journaled) and item.event.get("phase") == "WAITING"


def report(console: Console, followed: Followed, *, follow: bool, as_json: bool) -> None:
    """Write the result: the answer alone, the answer with what it took, or the session as JSON."""
    session = followed.session
    if as_json:
        write_line(console, compact(session))
        return
    result = record((followed.ended or session).get("result"))
    answer = clean(text(result.get("text")))
    if answer:
        if follow:
            console.print(Text("answer", style="bold"))
        write_line(console, answer)
    if result.get("data") is not None:
        write_line(console, compact(result.get("data")))
    if follow:
        _foot(console, followed)


def _foot(console: Console, followed: Followed) -> None:
    session, ended = followed.session, followed.ended
    source = ended or session
    line = outcome_line(followed.status, text(source.get("stop_reason")))
    console.print(line.append(f" · {totals(record(source.get('usage')))}", style="default"))
    if error := record(source.get("error") or session.get("error")):
        console.print(Text(f"{brief(error.get('kind'), 40)}: {brief(error.get('message'), 400)}"))
    trace_url = text(session.get("trace_url"))
    if trace_url:
        console.print(Text(f"trace {clean(trace_url)}"))


def advice(followed: Followed, service: Service, *, follow: bool) -> str:
    """Return what the user can do next with a session that did not complete."""
    session_id, surefoot = clean(text(followed.session.get("id"))), command(service.url)
    match followed.status:
        case "waiting":
            return asked(session_id, record(followed.session.get("pending")), service)
        case "stopped":
            return f"Go on with higher limits: {surefoot} resume {session_id} --max-steps N"
        case "failed":
            said = "" if follow else _error(followed)
            return f"{said}See what happened: {surefoot} trace {session_id}"
        case _:
            return ""


def _error(followed: Followed) -> str:
    error = record((followed.ended or {}).get("error") or followed.session.get("error"))
    return f"{brief(error.get('kind'), 40)}: {brief(error.get('message'), 400)}\n" if error else ""
