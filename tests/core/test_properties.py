"""What holds for every life of a session, whatever model, tools, users and crashes do."""

import os
from collections.abc import Callable
from math import ceil
from random import Random
from typing import Final

import pytest

from app.core.effects import CallTool
from app.core.events import EffectClass, SessionForked
from app.core.evolve import fold
from app.core.inputs import ApprovalGiven, CancelAsked, Claimed, ClientAnswered, Input, Verified
from app.core.machine import decide
from app.core.messages import UserMessage, sequence_fault
from app.core.plan import in_doubt, owed, time_left_us
from app.core.state import State
from tests.core.forks import fork
from tests.core.laws import check_all
from tests.core.machine_kit import SECOND, Machine
from tests.core.walks import PRICED, forked, limits, lived, walk

LIVES: Final = 400
SOME: Final = 150
SHARE: Final = float(os.environ.get("LIVES_SHARE", "1"))
"""How much of these to live: `make mutants` plays the tests thousands of times."""


def each(check: Callable[[int], None], lives: int = SOME) -> None:
    """Check many lives, each by its seed; a failure says which."""
    for seed in range(ceil(lives * SHARE)):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"the life of seed {seed}")
            raise


@pytest.mark.req("LOOP-1", "STATE-10", "CTX-7", "TOOL-10", "TOOL-17", "API-7")
@pytest.mark.case("C044")
def test_every_life_folds_ends_and_explains_itself() -> None:
    def check(seed: int) -> None:
        check_all(lived(seed))

    each(check, LIVES)


@pytest.mark.req("STATE-7", "TOOL-10", "CTX-7")
def test_a_fork_lives_by_the_same_laws_and_so_does_its_fork() -> None:
    def check(seed: int) -> None:
        child = forked(lived(seed), seed)
        check_all(child)
        check_all(forked(child, seed + 1))

    each(check)


@pytest.mark.req("STATE-7", "CTX-7")
def test_a_fork_at_every_event_goes_on_with_a_history_that_can_be_sent() -> None:
    def check(seed: int) -> None:
        parent = lived(seed, 25)
        for at_seq in range(1, len(parent.events) + 1):
            for task in (None, "another task"):
                _forks(parent, at_seq, task)

    each(check, 12)


def _forks(parent: Machine, at_seq: int, task: str | None) -> None:
    child = fork(parent, at_seq, task)
    cut = next(e.body.at_seq for e in child.events[::-1] if isinstance(e.body, SessionForked))
    assert cut <= at_seq
    taken = fold(child.events[:cut])
    assert taken is not None
    assert child.state.history[: len(taken.history)] == taken.history
    assert sequence_fault(child.state.history) is None
    assert child.state.calls == ()
    child.claim(child.state.epoch + 1)
    if task is not None:
        child.prepare()
        assert child.state.history[-1] == UserMessage(task, 4)
    if owed(child.state):
        child.answer(text="an answer")


@pytest.mark.req("STATE-4", "TOOL-10")
def test_a_crash_anywhere_owes_the_same_but_for_once_calls_in_flight() -> None:
    def check(seed: int) -> None:
        chance = Random(seed)
        machine = Machine(limits(chance), model=PRICED)
        for _ in range(25):
            walk(machine, chance)
            _crashes(machine.state)

    each(check)


def _crashes(live: State) -> None:
    claimed = decide(live, _claim(live)).state  # the refold equals it: see above
    lost = {
        e.key for e in owed(live) if isinstance(e, CallTool) and e.call.effect is EffectClass.ONCE
    }
    assert [e for e in owed(live) if e.key not in lost] == list(owed(claimed))
    doubts = {f"tool:{c.call.call_id}:{c.attempt}" for c in in_doubt(claimed)}
    assert lost <= doubts
    assert claimed.pending == live.pending


def test_a_session_can_always_be_ended() -> None:
    def check(seed: int) -> None:
        state = lived(seed).state
        cancelled = decide(state, CancelAsked(state.at_us)).state
        assert state.between_turns or cancelled.ended is not None
        assert not cancelled.calls
        assert cancelled.between_turns
        assert time_left_us(cancelled, state.at_us) is None

    each(check)


def test_a_late_answer_decides_nothing() -> None:
    def check(seed: int) -> None:
        chance = Random(seed)
        machine = Machine(limits(chance), model=PRICED)
        given: list[Input] = []
        take = machine.give

        def keep(one: Input) -> object:
            given.append(one)
            return take(one)

        machine.give = keep  # type: ignore[method-assign,assignment]
        for _ in range(chance.randint(1, 25)):
            walk(machine, chance)
        keys = {e.key for e in owed(machine.state)}
        for late in given:
            if getattr(late, "key", None) not in {None, *keys}:
                assert decide(machine.state, late).events == ()
            if isinstance(late, ApprovalGiven | ClientAnswered):
                assert decide(machine.state, late).events == ()

    each(check)


def _claim(state: State) -> Claimed:
    return Claimed(state.at_us + SECOND, "wrk_2", state.epoch + 1, 15 * SECOND)


@pytest.mark.req("LOOP-1")
def test_a_fold_from_any_prefix_is_the_fold_of_all() -> None:
    machine = Machine()
    machine.tell()
    events = machine.events
    for cut in range(1, len(events) + 1):
        assert fold(events[cut:], fold(events[:cut])) == machine.state
    unknown = Verified(machine.now_us, "t9_c9_9", happened=True, output=None, tokens=0)
    assert decide(machine.state, unknown).events == ()
