"""A whole trace as a tree: turns, their steps, and a line with its time for each event."""

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from app.cli.lines import Narrator, outcome_line, totals
from app.cli.values import Record, brief, clean, integer, number, record, seconds, text


class TraceTree:
    """Builds the tree event by event, in the journal's order."""

    def __init__(self, session: Record) -> None:
        """Begin with the session's own line."""
        label = Text(clean(text(session.get("id"))), style="bold")
        label.append(" · ").append_text(
            outcome_line(text(session.get("status")), text(session.get("stop_reason")))
        )
        agent = record(session.get("agent"))
        label.append(f" · agent {brief(agent.get('name'), 64)} v{integer(agent.get('version'))}")
        label.append(f" · model {brief(session.get('model'), 64)}")
        self.root = Tree(label, guide_style="dim")
        self._narrator = Narrator()
        self._turn: Tree = self.root
        self._step: Tree | None = None
        self._step_number = 0
        self._turn_began: float | None = None

    def add(self, event: Record) -> None:
        """Put an event in its place."""
        data = record(event.get("data"))
        match event.get("type"):
            case "turn.started":
                self._start_turn(event, data)
            case "turn.ended":
                self._end_turn(event, data)
            case _:
                line = self._narrator.line(event)
                if line is not None:
                    self._branch(integer(event.get("step"))).add(self._offset(event) + line)

    def _start_turn(self, event: Record, data: Record) -> None:
        self._turn_began = seconds(event.get("at"))
        label = Text(f"turn {integer(event.get('turn'))}", style="bold")
        continues = data.get("continues")
        label.append(f" · continues turn {integer(continues)}" if continues else "")
        label.append(f" · {brief(data.get('text'), 120)}", style="default")
        self._turn = self.root.add(label)
        self._step, self._step_number = None, 0

    def _end_turn(self, event: Record, data: Record) -> None:
        line = outcome_line(text(data.get("status")), text(data.get("stop_reason")))
        line.append(f" · {totals(record(data.get('usage')))}", style="default")
        end = self._turn.add(self._offset(event) + line)
        answer = brief(record(data.get("result")).get("text"), 400)
        if answer:
            end.add(Text(answer))

    def _branch(self, step: int) -> Tree:
        """Return the branch of a step; what happens before the first hangs on the turn."""
        if step < 1:
            return self._turn
        if self._step is None or step != self._step_number:
            self._step = self._turn.add(Text(f"step {step}", style="bold"))
            self._step_number = step
        return self._step

    def _offset(self, event: Record) -> Text:
        at = seconds(event.get("at"))
        if at is None or self._turn_began is None:
            return Text("         ")
        return Text(f"{at - self._turn_began:+8.3f} ", style="dim")


def steps_table(events: list[Record]) -> Table:
    """Return tokens and calls by step."""
    rows: dict[tuple[int, int], list[float]] = {}
    for event in events:
        data = record(event.get("data"))
        row = rows.setdefault((integer(event.get("turn")), integer(event.get("step"))), [0.0] * 5)
        match event.get("type"):
            case "model.answered":
                usage = record(data.get("usage"))
                row[0] += 1
                row[1] += number(usage.get("input_tokens"))
                row[2] += number(usage.get("output_tokens"))
            case "tool.finished":
                row[3] += 1
                row[4] += number(data.get("duration_ms"))
            case _:
                pass
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("turn", "step", "model calls", "tokens in", "tokens out", "tools", "tools ms"):
        table.add_column(title, justify="right")
    for (turn, step), row in rows.items():
        if any(row):
            table.add_row(str(turn), str(step), *(f"{value:,.0f}" for value in row))
    return table


def print_trace(console: Console, session: Record, events: list[Record]) -> None:
    """Write the tree, then the table."""
    tree = TraceTree(session)
    for event in events:
        tree.add(event)
    console.print(tree.root)
    table = steps_table(events)
    if table.row_count:
        console.print()
        console.print(table)
