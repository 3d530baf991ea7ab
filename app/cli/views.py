"""Ways to show a session while it runs: live on a terminal, as lines, as JSON, or not at all."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from typing_extensions import override

from app.cli.lines import Narrator
from app.cli.stream import Cut, Delta, Item, Journaled
from app.cli.values import Record, brief, clean, compact, integer, record, text

_TAIL_LINES: Final = 12
_FRAMES_PER_S: Final = 12


def console_for_output() -> Console:
    """Return stdout's console; without a terminal nothing is wrapped, coloured or cut."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, emoji=False, width=10_000, no_color=True)


class View(Protocol):
    """Something that is shown each item of a stream."""

    def show(self, item: Item) -> None:
        """Show it."""


class SilentView:
    """Shows nothing: the caller wants the result only."""

    def show(self, item: Item) -> None:
        """Show nothing."""


class JsonView:
    """Each event of the journal as a line of JSON, as the service sent it."""

    def __init__(self, console: Console) -> None:
        """Write to this console's file."""
        self._console = console

    def show(self, item: Item) -> None:
        """Write the event; deltas are no part of the record."""
        if isinstance(item, Journaled):
            write_line(self._console, compact(item.event))


class LinesView:
    """One line an event; an answer appears whole."""

    def __init__(self, console: Console) -> None:
        """Write to this console."""
        self.console = console
        self._narrator = Narrator()

    def show(self, item: Item) -> None:
        """Write the line, if the item has one."""
        match item:
            case Journaled(event):
                line = self._narrator.line(event)
                if line is not None:
                    self._print(line)
            case Cut(reason):
                self._print(Text(f"connection lost ({brief(reason)}); going on", style="dim"))
            case Delta():
                pass

    def _print(self, line: Text) -> None:
        line.no_wrap = True
        line.overflow = "ellipsis"
        self.console.print(line, soft_wrap=not self.console.is_terminal)


class LiveView(LinesView):
    """Lines above, and below them what goes on right now: phase, calls in flight, text so far."""

    def __init__(self, console: Console) -> None:
        """Start with nothing going on."""
        super().__init__(console)
        self._spinner = Spinner("dots")
        self._running: dict[str, Text] = {}
        self._text = ""
        self._phase = ""
        self._step = 0
        self._tokens = 0

    @override
    def show(self, item: Item) -> None:
        """Keep up the picture, then write the line."""
        match item:
            case Delta(piece):
                self._text += clean(piece)
            case Cut():
                self._text = ""
            case Journaled(event):
                self._note(event, record(event.get("data")))
        super().show(item)

    def _note(self, event: Record, data: Record) -> None:
        self._phase = text(event.get("phase")) or self._phase
        self._step = integer(event.get("step"))
        match event.get("type"):
            case "model.requested" | "model.failed" | "turn.started":
                self._text = ""
            case "model.answered":
                self._text = ""
                usage = record(data.get("usage"))
                self._tokens += integer(usage.get("input_tokens"))
                self._tokens += integer(usage.get("output_tokens"))
            case "tool.intended":
                label = f"{brief(data.get('name'), 64)} {brief(data.get('arguments'), 80)}"
                self._running[text(data.get("call_id"))] = Text(label, style="yellow")
            case "tool.finished":
                self._running.pop(text(data.get("call_id")), None)
            case "turn.ended":
                self._running.clear()
            case _:
                pass

    def render(self) -> RenderableType:
        """Return the picture of now."""
        state = f"{self._phase or 'queued'} · step {self._step} · {self._tokens:,} tokens"
        self._spinner.update(text=Text(state, style="bold blue"))
        tail = "\n".join(self._text.splitlines()[-_TAIL_LINES:])
        running = [Text("  ▸ ", end="").append_text(call) for call in self._running.values()]
        return Group(*([Text(tail)] if tail else []), *running, self._spinner)


@contextmanager
def open_view(console: Console, *, follow: bool, as_json: bool) -> Iterator[View]:
    """Choose how to show a session, and hold the terminal's live region while it is shown."""
    if not follow:
        yield SilentView()
    elif as_json:
        yield JsonView(console)
    elif not console.is_terminal:
        yield LinesView(console)
    else:
        view = LiveView(console)
        live = Live(
            get_renderable=view.render,
            console=console,
            transient=True,
            refresh_per_second=_FRAMES_PER_S,
        )
        with live:
            yield view


def write_line(console: Console, line: str) -> None:
    """Write a line as it is: no wrapping, no styles. Flushed, so that a pipe gets it at once."""
    console.file.write(line + "\n")
    console.file.flush()


def note(message: str) -> None:
    """Write to stderr what is no result: hints and refusals, whole lines, without styles."""
    print(clean(message), file=sys.stderr)
