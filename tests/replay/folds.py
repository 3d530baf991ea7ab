"""What each golden journal folds to, event by event, kept beside it.

`python -m tests.replay.folds` writes the files for journals that have none. Whoever wants one to be
written anew, because what stored events do to a session is to change, deletes it first.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

from app.core.events import CallMade, Event
from app.core.evolve import evolve
from app.core.plan import owed, resting
from app.core.state import State
from app.storage.codec import JsonCodec

HERE: Final = Path(__file__).parent
JOURNALS: Final = sorted(HERE.glob("v*/*.jsonl"))


def events(path: Path) -> list[Event]:
    """Return the events of a journal."""
    codec = JsonCodec()
    return [codec.decode(line.encode()) for line in path.read_text().splitlines()]


def folds(path: Path) -> Iterator[str]:
    """Return a line for each event: what it changed, in the state and in what the state asks for.

    What was added at the end of a list stands under `+`.
    """
    state: State | None = None
    before: dict[str, object] = {}
    for event in events(path):
        state = evolve(state, event)
        after = {
            f.name: _plain(getattr(state, f.name)) for f in fields(state) if f.name != "created"
        }
        after |= {"owed": _plain(owed(state)), "resting": _plain(resting(state))}
        line = {name: _added(before.get(name), now) for name, now in after.items()}
        yield json.dumps({n: v for n, v in line.items() if n not in before or v != before[n]})
        before = after


def _added(before: object, now: object) -> object:
    if isinstance(before, list) and isinstance(now, list) and 0 < len(before) < len(now):
        return {"+": now[len(before) :]} if now[: len(before)] == before else now
    return now


def _plain(value: object) -> object:
    """Return a value as JSON has it, each object with its class, less what is empty.

    Of a call, which its event holds, only what a person can change about it.
    """
    if isinstance(value, CallMade):
        return [value.call_id, value.arguments, value.digest, value.loop_digest]
    if is_dataclass(value) and not isinstance(value, type):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        kept = {n: v for n, v in given.items() if v not in (None, "", 0, ())}
        return {"is": type(value).__name__, **{n: _plain(v) for n, v in kept.items()}}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def kept(path: Path) -> Path:
    """Return where the folds of a journal are kept."""
    return path.with_suffix(".folds")


if __name__ == "__main__":
    for journal in JOURNALS:
        if not kept(journal).exists():
            kept(journal).write_text("\n".join(folds(journal)) + "\n")
