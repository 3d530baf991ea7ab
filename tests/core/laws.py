"""What a journal may never show, whatever model, tools, users, people and crashes did."""

from collections import Counter
from collections.abc import Iterator

from app.core.canonical import action_digest
from app.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Choice,
    EffectClass,
    Event,
    GuardTripped,
    MessageReceived,
    ModelAnswered,
    ModelRequested,
    Outcome,
    Policy,
    Purpose,
    SessionClosed,
    SessionForked,
    StepFinished,
    ToolFinished,
    ToolIntended,
    TurnEnded,
    TurnStarted,
)
from app.core.evolve import evolve
from app.core.lifecycle import StopReason
from app.core.messages import UserMessage
from app.core.state import State
from tests.core.machine_kit import Machine

Life = list[tuple[Event, State]]
"""The events, each with the state after it."""


def check_all(machine: Machine) -> None:
    """Hold a life against all of them."""
    life = list(folded(machine.events))
    assert life[-1][1] == machine.state
    turns_end_once(machine.events)
    nothing_new_after_a_stop(machine.events)
    each_call_is_closed_once(machine)
    once_is_once(life)
    best_result_is_kept(machine)
    approvals_are_bound(life)
    nothing_said_is_lost(life)
    interrupts_come_next(life)


def turns_end_once(events: list[Event]) -> None:
    ended = Counter(e.turn for e in events if isinstance(e.body, TurnEnded))
    assert set(ended.values()) <= {1}
    turns = max(e.turn for e in events)
    assert all(ended[turn] == 1 for turn in range(1, turns))


def nothing_new_after_a_stop(events: list[Event]) -> None:
    """After a guard's stop: at most a closing call, no step, no tool (LOOP-1)."""
    stopped: set[int] = set()
    for event in events:
        body = event.body
        if isinstance(body, GuardTripped) and body.stop_reason and event.phase != "DONE":
            stopped.add(event.turn)
        elif event.turn in stopped:
            assert not isinstance(body, ToolIntended | StepFinished)
            assert not isinstance(body, ModelRequested) or body.purpose is Purpose.CLOSING
    assert all(e.step <= 50 for e in events)


def each_call_is_closed_once(machine: Machine) -> None:
    asked = [
        c.call_id
        for e in machine.events
        if isinstance(e.body, ModelAnswered)
        for c in e.body.tool_calls
    ]
    finished = Counter(r.call_id for r in machine.results())
    intended = Counter(e.body.call_id for e in machine.events if isinstance(e.body, ToolIntended))
    assert len(asked) == len(set(asked))
    assert set(finished) <= set(asked)
    assert set(intended) <= set(asked)
    assert max(finished.values(), default=1) == max(intended.values(), default=1) == 1
    still_open = {c.call.call_id for c in machine.state.calls if c.result is None}
    assert set(asked) - still_open == set(finished)


def once_is_once(life: Life) -> None:
    """No `once` action is sent again in a turn, unless it certainly did not happen.

    Where nobody knows, a person may have it made again.
    """
    happened: set[tuple[int, str]] = set()
    unknown: set[tuple[int, str]] = set()
    approved: set[str] = set()
    for event, state in life:
        body = event.body
        if isinstance(body, ApprovalDecided) and body.decision is Choice.APPROVE:
            approved.add(body.call_id)
        if not isinstance(body, ToolIntended | ToolFinished):
            continue
        made = next(c.call for c in state.calls if c.call.call_id == body.call_id)
        action = (_root(life, state.turn), made.digest)
        if made.effect is not EffectClass.ONCE:
            continue
        if isinstance(body, ToolIntended):
            assert action not in happened
            assert action not in unknown or body.call_id in approved
        elif body.executed and body.outcome is Outcome.OK:
            happened.add(action)
        elif body.executed and body.outcome is Outcome.UNKNOWN:
            unknown.add(action)


def _root(life: Life, turn: int, until: int = 0) -> int:
    """Return the first of the turns which this one goes on with, at most back to `until`."""
    continues = {e.turn: e.body.continues for e, _ in life if isinstance(e.body, TurnStarted)}
    before = continues.get(turn)
    return turn if before is None or turn == until else _root(life, before, until)


def best_result_is_kept(machine: Machine) -> None:
    """Never an empty result after a successful tool call (API-9)."""
    for turn in {e.turn for e in machine.events}:
        of_turn = [e.body for e in machine.events if e.turn == turn]
        good = any(
            isinstance(b, ToolFinished) and b.outcome is Outcome.OK and b.executed for b in of_turn
        )
        for body in of_turn:
            if good and isinstance(body, TurnEnded):
                assert body.result.text.strip()


def approvals_are_bound(life: Life) -> None:
    """What needs a person is made only as a person allowed it, and each question has one answer."""
    asked: dict[str, ApprovalRequested] = {}
    decided: dict[str, ApprovalDecided] = {}
    forked_turn = 0
    for event, state in life:
        body = event.body
        match body:
            case SessionForked():
                forked_turn = body.turn
            case ApprovalRequested():
                assert body.call_id not in asked
                asked[body.call_id] = body
            case ApprovalDecided():
                assert body.call_id not in decided
                assert body.approval_id == asked[body.call_id].approval_id
                decided[body.call_id] = body
            case ToolIntended():
                call = next(c.call for c in state.calls if c.call.call_id == body.call_id)
                again = forked_turn == _root(life, state.turn, forked_turn) and forked_turn > 0
                if call.needs_approval or (again and call.effect is EffectClass.ONCE):
                    assert decided[body.call_id].decision is Choice.APPROVE
                if body.call_id in asked:
                    _made_as_allowed(body, asked[body.call_id], decided[body.call_id])
            case _:
                pass


def _made_as_allowed(
    made: ToolIntended, asked: ApprovalRequested, decided: ApprovalDecided
) -> None:
    assert decided.decision is Choice.APPROVE
    changed = decided.arguments
    assert made.arguments == (asked.arguments if changed is None else changed)
    assert asked.hash == action_digest(made.name, asked.arguments)


def nothing_said_is_lost(life: Life) -> None:
    """Each accepted message stands exactly once in the history or the queue.

    Closing drops what waits, and a fork leaves it to the session it came from.
    """
    said: list[str] = []
    before: State | None = None
    for event, state in life:
        body = event.body
        if isinstance(body, SessionClosed | SessionForked) and before is not None:
            for text in before.queue:
                said.remove(text.text)
        if isinstance(body, MessageReceived):
            said.append(body.text)
            if body.policy is Policy.INTERRUPT:
                assert body.text in [t.text for t in state.queue]
        taken = [
            m.text
            for m in state.history
            if isinstance(m, UserMessage) and m.text.startswith("said")
        ]
        assert Counter(said) == Counter([*taken, *(t.text for t in state.queue)])
        before = state


def interrupts_come_next(life: Life) -> None:
    """An interrupt ends the open turn at once, and the next turn is of one that interrupts."""
    waiting: list[str] = []
    cancelled: set[str] = set()
    for n, (event, state) in enumerate(life):
        body = event.body
        if isinstance(body, SessionClosed | SessionForked):
            waiting = []
        elif isinstance(body, MessageReceived) and body.policy is Policy.INTERRUPT:
            waiting.append(body.text)
            if state.queue[0].policy is not Policy.INTERRUPT:
                cancelled.add(state.queue[0].text)
            if not state.between_turns:
                _ends_here([e for e, _ in life[n:]])
        elif isinstance(body, TurnStarted) and waiting and body.continues is None:
            if body.text in cancelled:
                continue
            assert body.text == waiting.pop(0)


def _ends_here(events: list[Event]) -> None:
    """The turn ends in the decision of the first event, unless a fork was cut in its middle."""
    end = next(e for e in events if isinstance(e.body, TurnEnded | SessionForked))
    if isinstance(end.body, TurnEnded):
        assert end.body.stop_reason is StopReason.CANCELLED
        assert end.at_us == events[0].at_us


def folded(events: list[Event]) -> Iterator[tuple[Event, State]]:
    """Return each event with the state after it."""
    state: State | None = None
    for event in events:
        state = evolve(state, event)
        yield event, state
