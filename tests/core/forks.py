"""A fork of a session on the pure machine."""

from dataclasses import replace

from app.core.canonical import Json, digest
from app.core.events import SessionCreated
from app.core.evolve import evolve
from app.core.phases.forking import Forking, GivenResult, boundary, forked
from app.core.state import QueuedText, State
from tests.core.invariants import check_history, check_owed
from tests.core.machine_kit import Machine, refolded


def fork(
    parent: Machine,
    at_seq: int,
    task: str | None = None,
    result: tuple[str, Json] | None = None,
) -> Machine:
    """Return the session that goes on from the last boundary up to there, as a service makes it."""
    call_id = None if result is None else result[0]
    states: list[State | None] = [None]
    for event in parent.events:
        states.append(evolve(states[-1], event))
    cut = next(n for n in range(at_seq, 0, -1) if (s := states[n]) and boundary(s, call_id))
    first = parent.events[0]
    assert isinstance(first.body, SessionCreated)
    session = f"{first.body.session_id}f"
    made = replace(first.body, session_id=session, parent=first.body.session_id)
    child = Machine(claimed=False)
    child.events = [replace(first, body=made), *parent.events[1:cut]]
    child.state = refolded(child)
    child.now_us = parent.now_us
    given = GivenResult(*result, 7, digest(result[1])) if result else None
    told = QueuedText(task, 4) if task else None
    asked = Forking(child.now_us, made.parent or "", cut, told, given)
    for event in forked(child.state, asked):
        check_history(state := evolve(child.state, event), event)
        child.events.append(event)
        child.state = state
    if child.state.between_turns or child.state.phase is not None:
        check_owed(child.state)
    return child
