"""What holds for every life of a session, whatever model, tools, users and crashes do."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.effects import CallTool
from app.core.events import (
    EffectClass,
    Event,
    GuardTripped,
    Limits,
    ModelAnswered,
    ModelRef,
    ModelRequested,
    Outcome,
    Purpose,
    StepFinished,
    ToolFinished,
    ToolIntended,
    TurnEnded,
)
from app.core.evolve import evolve, fold
from app.core.inputs import CancelAsked, Claimed, Input, Verified
from app.core.machine import decide
from app.core.plan import in_doubt, owed, time_left_us
from app.core.state import State
from tests.core.machine_kit import SECOND, Machine, refolded
from tests.core.walks import LIMITS, walk

PRICED = ModelRef("m", context_window=2_000, price_input=1.0, price_output=2.0)
LIVES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SOME = settings(LIVES, max_examples=50)


def lived(data: st.DataObject, limits: Limits, steps: int = 40) -> Machine:
    machine = Machine(limits, model=PRICED)
    for _ in range(data.draw(st.integers(1, steps))):
        walk(machine, data.draw)
    return machine


@pytest.mark.req("LOOP-1", "STATE-10", "CTX-7")
@pytest.mark.case("C044")
@LIVES
@given(st.data(), LIMITS)
def test_every_life_folds_ends_and_explains_itself(data: st.DataObject, limits: Limits) -> None:
    machine = lived(data, limits)
    assert refolded(machine) == machine.state
    _turns_end_once(machine.events)
    _nothing_new_after_a_stop(machine.events)
    _each_call_is_closed_once(machine)
    _once_is_once(machine.events)
    _best_result_is_kept(machine)


@pytest.mark.req("STATE-4", "TOOL-10")
@SOME
@given(st.data(), LIMITS)
def test_a_crash_anywhere_owes_the_same_but_for_once_calls_in_flight(
    data: st.DataObject, limits: Limits
) -> None:
    machine = Machine(limits, model=PRICED)
    for _ in range(data.draw(st.integers(1, 30))):
        walk(machine, data.draw)
        live = machine.state
        claimed = decide(live, _claim(live)).state  # the refold equals it: see above
        lost = {
            e.key
            for e in owed(live)
            if isinstance(e, CallTool) and e.call.effect is EffectClass.ONCE
        }
        assert [e for e in owed(live) if e.key not in lost] == list(owed(claimed))
        doubts = {f"tool:{c.call.call_id}:{c.attempt}" for c in in_doubt(claimed)}
        assert lost <= doubts


@SOME
@given(st.data(), LIMITS)
def test_a_session_can_always_be_ended(data: st.DataObject, limits: Limits) -> None:
    state = lived(data, limits).state
    cancelled = decide(state, CancelAsked(state.at_us)).state
    assert state.between_turns or cancelled.ended is not None
    assert not cancelled.calls
    assert cancelled.between_turns
    assert time_left_us(cancelled, state.at_us) is None


@SOME
@given(st.data(), LIMITS)
def test_a_late_answer_decides_nothing(data: st.DataObject, limits: Limits) -> None:
    machine = Machine(limits, model=PRICED)
    given: list[Input] = []
    take = machine.give

    def keep(one: Input) -> object:
        given.append(one)
        return take(one)

    machine.give = keep  # type: ignore[method-assign,assignment]
    for _ in range(data.draw(st.integers(1, 25))):
        walk(machine, data.draw)
    answers = [i for i in given if hasattr(i, "key")]
    keys = {e.key for e in owed(machine.state)}
    for late in answers:
        if getattr(late, "key", "") not in keys:
            assert decide(machine.state, late).events == ()


def _claim(state: State) -> Claimed:
    return Claimed(state.at_us + SECOND, "wrk_2", state.epoch + 1, 15 * SECOND)


def _turns_end_once(events: list[Event]) -> None:
    ended = Counter(e.turn for e in events if isinstance(e.body, TurnEnded))
    assert set(ended.values()) <= {1}
    turns = max(e.turn for e in events)
    assert all(ended[turn] == 1 for turn in range(1, turns))


def _nothing_new_after_a_stop(events: list[Event]) -> None:
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


def _each_call_is_closed_once(machine: Machine) -> None:
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


def _once_is_once(events: list[Event]) -> None:
    """No `once` action is sent again in a turn, unless it certainly did not happen."""
    state: State | None = None
    happened: set[tuple[int, str]] = set()
    for event in events:
        body = event.body
        state_before, state = state, evolve(state, event)
        assert state is not None
        root = state.turn if state_before is None else _root(events, state.turn)
        if isinstance(body, ToolIntended) and body.effect is EffectClass.ONCE:
            digest = next(c.call.digest for c in state.calls if c.call.call_id == body.call_id)
            assert (root, digest) not in happened
        if (
            isinstance(body, ToolFinished)
            and body.executed
            and body.outcome
            in {
                Outcome.OK,
                Outcome.UNKNOWN,
            }
        ):
            made = next(c.call for c in state.calls if c.call.call_id == body.call_id)
            if made.effect is EffectClass.ONCE:
                happened.add((root, made.digest))


def _root(events: list[Event], turn: int) -> int:
    """Return the first of the turns which this one goes on with."""
    continues = {
        e.turn: getattr(e.body, "continues", None) for e in events if e.body.TYPE == "turn.started"
    }
    before = continues.get(turn)
    return turn if before is None else _root(events, before)


def _best_result_is_kept(machine: Machine) -> None:
    """Never an empty result after a successful tool call (API-9)."""
    for turn in {e.turn for e in machine.events}:
        of_turn = [e.body for e in machine.events if e.turn == turn]
        good = any(
            isinstance(b, ToolFinished) and b.outcome is Outcome.OK and b.executed for b in of_turn
        )
        for body in of_turn:
            if good and isinstance(body, TurnEnded):
                assert body.result.text.strip()


@pytest.mark.req("LOOP-1")
def test_a_fold_from_any_prefix_is_the_fold_of_all() -> None:
    machine = Machine()
    machine.tell()
    events = machine.events
    for cut in range(1, len(events) + 1):
        assert fold(events[cut:], fold(events[:cut])) == machine.state
    unknown = Verified(machine.now_us, "t9_c9_9", happened=True, output=None, tokens=0)
    assert decide(machine.state, unknown).events == ()
