"""A journal is decided again as it was; a change of the rules is found where it first shows."""

from dataclasses import replace
from random import Random

import pytest

from app.core import guards, machine
from app.core.effects import CheckStatus
from app.core.events import (
    Choice,
    Event,
    Limits,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    Policy,
    Result,
    SessionCreated,
    SessionForked,
    StepFinished,
    TimerFired,
    ToolAttempted,
    ToolFinished,
    TurnEnded,
    Usage,
)
from app.core.evolve import BrokenJournalError, evolve, fold, place
from app.core.faults import Fault, FaultKind
from app.core.inputs import ApprovalGiven, Claimed, ClientAnswered, StatusChecked, Told
from app.core.lifecycle import Phase, Status, StopReason
from app.core.machine import decide
from app.core.phases.forking import Forking, GivenResult, forked
from app.core.plan import owed
from app.core.replay import Divergence, Replay, replay
from app.core.state import QueuedText
from tests.core import walks
from tests.core.machine_kit import ONCE, READ, SECOND, Machine, call
from tests.core.test_properties import LIVES, each
from tests.core.walks import lived

CREATED = 2
"""Events that creation writes, and no decision."""


def same(session: Machine, *, folded: int = CREATED) -> None:
    found = replay(session.events)
    assert found.divergence is None, found
    assert (found.events, found.folded) == (len(session.events), folded)


def diverges(events: list[Event]) -> Divergence:
    found = replay(events).divergence
    assert found is not None
    return found


@pytest.mark.req("STATE-6", "LOOP-1")
def test_every_life_is_decided_again_as_it_was() -> None:
    def check(seed: int) -> None:
        same(lived(seed))
        assert replay(walks.forked(lived(seed), seed).events).divergence is None

    each(check, LIVES)


def test_it_makes_no_difference_in_which_pages_a_journal_comes() -> None:
    def check(seed: int) -> None:
        events, chance, run = lived(seed, steps=20).events, Random(seed), Replay()
        rest = list(events)
        while rest:
            size = chance.randint(1, 7)
            run.take(rest[:size])
            del rest[:size]
        assert run.end() == replay(events)

    each(check)


def test_a_changed_event_is_found_where_it_stands() -> None:
    """Of events that a rule has written, whatever they were decided upon."""

    def check(seed: int) -> None:
        events = lived(seed).events
        rules = [n for n, e in enumerate(events) if isinstance(e.body, StepFinished)]
        if not rules:
            return
        at = rules[seed % len(rules)]
        body = events[at].body
        assert isinstance(body, StepFinished)
        changed = replace(events[at], body=replace(body, succeeded=body.succeeded + 1))
        found = diverges([*events[:at], changed, *events[at + 1 :]])
        assert (found.seq, found.expected, found.actual) == (at + 1, events[at], changed)

    each(check)


def a_step() -> Machine:
    session = Machine(Limits(max_steps=2))
    session.step_ok(call("search", {"q": "x"}))
    session.step_ok(call("search", {"q": "y"}), output="another")
    session.answer(text="that is all")
    return session


@pytest.mark.req("STATE-6")
def test_a_guard_that_acts_otherwise_today_is_found_where_it_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = a_step()
    same(session)
    stops = next(e for e in session.events if e.body.TYPE == "guard.tripped")
    monkeypatch.setattr(guards, "stop_after_step", lambda *_, **__: None)
    monkeypatch.setattr(guards, "steps_used", lambda _: "other words")
    found = diverges(session.events)
    assert found.seq >= stops.seq
    assert found.actual == session.events[found.seq - 1]
    assert found.expected is not None
    assert found.expected.body != found.actual.body


def test_a_guard_that_never_acts_today_goes_on_where_the_journal_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Machine(Limits(max_steps=9, max_consecutive_errors=1))
    session.answer(call("boom", {"x": 1}))
    session.fail("boom")
    monkeypatch.setattr(guards, "stop_after_step", lambda *_, **__: None)
    found = diverges(session.events)
    assert found.actual is not None
    assert found.expected is not None
    assert (found.actual.body.TYPE, found.expected.body.TYPE) == ("guard.tripped", "phase.entered")


def test_a_journal_that_ends_within_a_decision_diverges_after_its_end() -> None:
    session = a_step()
    cut = session.events[:-1]
    assert diverges(cut) == Divergence(len(session.events), session.events[-1], None)


def test_what_comes_after_a_divergence_is_not_looked_at() -> None:
    session = a_step()
    at = next(n for n, e in enumerate(session.events) if isinstance(e.body, StepFinished))
    run = Replay()
    run.take([*session.events[:at], Event(at + 1, 1, 1, None, SECOND, StepFinished(9, 9, 9))])
    run.take(session.events[at + 1 :])
    assert run.diverged
    assert run.end().events == at


def test_what_nothing_leads_to_has_no_expectation() -> None:
    session = Machine()
    timer = place(session.state, TimerFired("total_timeout"), SECOND)
    assert diverges([*session.events, timer]) == Divergence(timer.seq, None, timer)
    step = place(session.state, StepFinished(0, 0, 0), SECOND)
    assert diverges([*session.events, step]) == Divergence(step.seq, None, step)
    told = MessageReceived("too late", 2)
    session.close()
    after = place(session.state, told, SECOND)
    assert diverges([*session.events, after]) == Divergence(after.seq, None, after)
    answer = place(session.state, ModelAnswered("hi", (), Usage(), "stop", 1), SECOND)
    failure = Fault.of(FaultKind.TIMEOUT, "late")
    late = place(session.state, ToolAttempted("t1_c1_1", 2, failure, SECOND), SECOND)
    failed = place(session.state, ModelFailed(failure, 1), SECOND)
    for one in (answer, late, failed):
        assert diverges([*session.events, one]).actual == one


def test_an_input_that_the_table_refuses_today_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Machine()
    session.tell()
    monkeypatch.setitem(machine.LEGAL, Told, frozenset())
    told = session.events[-1]
    assert diverges(session.events) == Divergence(told.seq, None, told)


def test_a_second_beginning_of_a_turn_diverges() -> None:
    session = Machine()
    again = place(session.state, session.events[1].body, SECOND)
    assert diverges([*session.events, again]) == Divergence(again.seq, None, again)


def fork(parent: Machine, *, task: QueuedText | None, result: GivenResult | None) -> list[Event]:
    """Return the journal of a fork at the parent's last event."""
    first = parent.events[0]
    assert isinstance(first.body, SessionCreated)
    made = replace(first.body, session_id="ses_2", parent="ses_1")
    events = [replace(first, body=made), *parent.events[1:]]
    state = fold(events)
    assert state is not None
    return [*events, *forked(state, Forking(SECOND, "ses_1", len(events), task, result))]


def claimed(events: list[Event]) -> list[Event]:
    """Return the journal after its first claim."""
    state = fold(events)
    assert state is not None
    return [*events, *decide(state, Claimed(SECOND, "wrk_9", 1, SECOND)).events]


@pytest.mark.req("STATE-7", "STATE-6")
@pytest.mark.parametrize("task", [None, QueuedText("and then?", 3)])
@pytest.mark.parametrize("given", [None, GivenResult("t1_c1_1", "paid", 4, "d", notable=True)])
def test_what_a_fork_took_over_was_not_decided_there_but_what_it_made_of_it(
    task: QueuedText | None, given: GivenResult | None
) -> None:
    parent = Machine()
    parent.answer(call("pay", effect=ONCE), call("search"))
    events = claimed(fork(parent, task=task, result=given))
    found = replay(events)
    assert (found.divergence, found.events) == (None, len(events))
    assert found.folded == len(parent.events)
    at = next(n for n, e in enumerate(events) if isinstance(e.body, ToolFinished))
    body = events[at].body
    assert isinstance(body, ToolFinished)
    changed = replace(events[at], body=replace(body, attempts=9))
    assert diverges([*events[:at], changed, *events[at + 1 :]]).seq == at + 1


def test_a_fork_of_a_fork_is_decided_from_the_last_one_on() -> None:
    parent = Machine()
    parent.answer(text="done")
    child = fork(parent, task=QueuedText("a", 1), result=None)
    first = child[0]
    assert isinstance(first.body, SessionCreated)
    grandchild = [replace(first, body=replace(first.body, parent="ses_2")), *child[1:]]
    state = fold(grandchild)
    assert state is not None
    grandchild += forked(state, Forking(SECOND, "ses_2", len(child), QueuedText("b", 1)))
    found = replay(grandchild)
    assert (found.divergence, found.folded) == (None, len(child))


def test_a_fork_where_none_may_be_diverges() -> None:
    parent = Machine()
    parent.answer(text="done")
    events = fork(parent, task=QueuedText("a", 1), result=None)
    forks = next(n for n, e in enumerate(events) if isinstance(e.body, SessionForked))
    torn = [*events[: forks - 1], replace(events[forks], seq=forks)]
    assert diverges(torn) == Divergence(forks, None, torn[-1])


@pytest.mark.req("STATE-6", "TOOL-17")
@pytest.mark.parametrize("choice", [Choice.APPROVE, Choice.DENY])
def test_decisions_of_people_and_of_the_caller_are_decided_again(choice: Choice) -> None:
    session = Machine()
    held = replace(call("pay", {"x": 1}, effect=ONCE), needs_approval=True)
    session.answer(held, replace(call("ask", {"x": 2}), client=True), call("search"))
    session.ok("search")
    (asked, *_) = [c.approval for c in session.state.calls if c.approval]
    given = ApprovalGiven(SECOND, asked.approval_id, choice, "as you like", by="me")
    session.give(given)
    session.give(ClientAnswered(SECOND, "t1_c1_2", {"a": 1}, None, 5, "d", notable=True))
    if choice is Choice.APPROVE:
        session.ok("pay")
    session.answer(replace(call("ask", {"x": 3}), client=True))
    session.give(ClientAnswered(SECOND, "t1_c2_1", None, "no way", 5, ""))
    session.answer(replace(call("pay", {"x": 4}, effect=ONCE), needs_approval=True))
    session.pass_s(100_000)
    session.claim(2)
    session.ring("approval")
    same(session)


@pytest.mark.req("STATE-6", "TOOL-10")
@pytest.mark.parametrize("happened", [True, False, None])
def test_what_a_tool_says_of_a_lost_call_is_decided_again(*, happened: bool | None) -> None:
    session = Machine()
    session.answer(replace(call("pay", effect=ONCE), checkable=True))
    session.fail("pay", FaultKind.TIMEOUT)
    for says, after_s in ((False, 1), (None, 1), (happened, 60)):
        session.pass_s(after_s)
        for effect in owed(session.state):
            if isinstance(effect, CheckStatus):
                at_us, key, which = session.now_us, effect.key, effect.call.call_id
                session.give(StatusChecked(at_us, key, which, says, "x", 5, None, 0.7))
    assert session.state.calls == ()
    same(session)


@pytest.mark.parametrize("policy", [Policy.STEER, Policy.INTERRUPT])
def test_messages_into_a_running_turn_are_decided_again(policy: Policy) -> None:
    session = Machine()
    session.answer(call("search"))
    session.tell("look there", policy)
    if policy is Policy.INTERRUPT:
        session.prepare()
    else:
        session.ok("search")
    session.answer(text="done")
    same(session)


def test_events_that_do_not_follow_one_another_are_no_journal() -> None:
    session = a_step()
    with pytest.raises(BrokenJournalError):
        replay([*session.events[:5], *session.events[6:]])


@pytest.mark.req("STATE-6")
def test_the_end_of_a_session_that_nobody_could_run_was_not_decided() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    given_up = _obituary(session)
    state = evolve(session.state, given_up)
    session.events.append(given_up)
    session.state = state
    session.tell("again")
    session.prepare()
    session.answer(text="hello")
    same(session, folded=CREATED + 1)


def test_another_end_without_a_decision_diverges() -> None:
    session = Machine()
    given_up = _obituary(session)
    assert isinstance(given_up.body, TurnEnded)
    stopped = replace(given_up.body, stop_reason=StopReason.MAX_STEPS)
    assert diverges([*session.events, replace(given_up, body=stopped)]).seq == given_up.seq


def _obituary(session: Machine) -> Event:
    fault = Fault.of(FaultKind.INTERNAL, "It could not be run.")
    ended = TurnEnded(
        Status.FAILED, StopReason.UNRECOVERABLE_ERROR, Result(""), Usage(), error=fault
    )
    return Event(session.state.seq + 1, 1, 1, Phase.DONE, SECOND, ended)


@pytest.mark.parametrize("jitter", [0.0, 0.4, 0.999])
def test_the_chance_in_a_wait_is_no_divergence(jitter: float) -> None:
    session = Machine()
    session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "busy"), jitter=jitter)
    patient = Fault.of(FaultKind.RATE_LIMITED, "slowly", retry_after_us=3 * SECOND)
    session.model_fails(patient, jitter=jitter)
    session.answer(call("search"))
    session.fail("search", FaultKind.TIMEOUT)
    session.ok("search")
    same(session)


def test_a_wait_that_chance_cannot_explain_is_one() -> None:
    session = Machine()
    session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "busy"))
    *before, failed = session.events
    body = failed.body
    assert isinstance(body, ModelFailed)
    assert body.retry_at_us is not None
    for retry_at_us in (body.retry_at_us - 1, body.retry_at_us * 2, None):
        other = replace(failed, body=replace(body, retry_at_us=retry_at_us))
        assert diverges([*before, other]).seq == failed.seq
    other = replace(failed, body=replace(body, retry_at_us=body.retry_at_us + 1, attempt=7))
    assert diverges([*before, other]).seq == failed.seq


def test_an_uncertain_outcome_is_known_through_the_words_put_around_it() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE), call("search", effect=READ))
    session.fail("pay", FaultKind.TIMEOUT)
    session.ok("search")
    result = session.results()[0]
    assert isinstance(result, ToolFinished)
    assert "it timeout" in (result.error.message if result.error else "")
    same(session)


def test_a_cancelled_turn_with_an_open_once_call_was_cancelled() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    session.cancel()
    session.tell("and then?")
    session.cancel()
    session.prepare()
    session.close()
    same(session)
