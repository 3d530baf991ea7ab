"""What is said of a session, whatever state it is in."""

from dataclasses import replace

import pytest

from app.core.events import Choice, Limits, Policy, SessionCreated
from app.core.faults import Fault, FaultKind
from app.core.inputs import ApprovalGiven, Claimed, StatusChecked
from app.core.plan import owed
from app.runtime.explaining.standing import Known, moment
from app.runtime.explaining.story import Story, explained
from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.sessions import SessionRow
from app.runtime.views import facts_of
from tests.core.forks import fork
from tests.core.machine_kit import ONCE, SECOND, Machine, call

READY = SessionRow(
    id="ses_1",
    tenant="default",
    agent="default",
    agent_version=1,
    model="m",
    mode="react",
    prompt="agent@1",
    facts=facts_of(Machine().state),
    key=WrappedKey("k", b"x"),
    head=0,
    head_hash=b"",
    epoch=1,
    inbox_head=0,
    inbox_seen=0,
    owner=None,
    owner_alive=False,
    waking=False,
    created_at_us=SECOND,
    updated_at_us=SECOND,
    parent=None,
    metadata=None,
    view=None,
)


def say(
    session: Machine,
    *,
    now_us: int | None = None,
    workers: bool = True,
    closed: str | None = None,
    **row: object,
) -> dict[str, object]:
    """Return the explanation of a session whose row is like this."""
    story = Story()
    story.take(session.events[:3])
    story.take(session.events[3:])
    facts, head = facts_of(session.state), session.state.seq
    known = Known(
        row=replace(READY, facts=facts, head=head, **row),  # type: ignore[arg-type]
        now_us=session.now_us if now_us is None else now_us,
        workers_alive=workers,
        closed=closed,
    )
    return explained(story, known)


def words(shown: dict[str, object]) -> str:
    sentences = shown["sentences"]
    assert isinstance(sentences, list)
    return "\n".join(sentences)


def owned(session: Machine) -> str:
    return words(say(session, owner="wrk_1", owner_alive=True))


def test_a_running_session_says_what_it_owes() -> None:
    session = Machine()
    assert "It owes the model's answer, asked for on 1970-01-01 00:00:01 UTC." in owned(session)
    session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "the endpoint is busy"))
    told = owned(session)
    assert "attempt 2, to be tried again on" in told
    assert "Once an attempt at the model failed, last: the endpoint is busy." in told
    session.answer(call("search", {"q": "x" * 300}))
    told = owned(session)
    assert "It owes the result of search" in told
    assert "…" in told
    assert "It has not ended." in told


def test_a_session_about_to_begin_a_turn_says_so() -> None:
    session = Machine()
    session.answer(text="one")
    session.tell("two")
    assert "The next turn is about to begin." in owned(session)
    session.cancel()
    session.prepare()
    assert "Turn 2 began on" in owned(session)
    assert "as cancelled (cancelled): cancelled before it began." in owned(session)


def test_a_guard_that_is_ending_the_turn_is_named() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("search", {"q": 1}))
    assert "A guard stops the turn: max_steps." in owned(session)
    session.answer(text="what I have")
    told = say(session)
    assert "as stopped (max_steps): the limit of 1 steps is reached." in words(told)
    assert "surefoot resume ses_1" in str(told["todo"])
    session.resume(Limits(max_steps=5))
    session.prepare()
    assert "Turn 2 went on with turn 1" in owned(session)


def test_a_takeover_names_both_owners_and_what_was_in_flight() -> None:
    session = Machine()
    session.answer(call("pay", {"x": 1}, effect=ONCE))
    session.pass_s(1)
    session.give(Claimed(session.now_us, "wrk_2", 4, 15 * SECOND))
    shown = say(session, owner="wrk_2", owner_alive=True, epoch=4)
    told = words(shown)
    assert "Worker wrk_1 took it on" in told
    assert "Worker wrk_2 took it over on" in told
    assert "wrk_1 had lost it" in told
    assert "claimed twice by owners who wrote nothing" in told
    assert "In flight at that moment, and so of unknown outcome: t1_c1_1" in told
    assert "its owner was lost" in str(shown["uncertain"])
    assert "then a person is asked" in str(shown["wakes"])
    assert [o["took_over"] for o in shown["owners"]] == [False, True]  # type: ignore[attr-defined]
    session.pass_s(60)
    session.ring("verification")
    shown = say(session)
    assert "It waits for a person to say what became of its calls" in words(shown)
    assert "surefoot verify ses_1 t1_c1_1 happened" in str(shown["todo"])
    session.verify("t1_c1_1", happened=False)
    assert "a person said that t1_c1_1 did not happen" in owned(session).lower()


def test_many_turns_and_owners_are_told_in_short() -> None:
    session = Machine()
    for n in range(8):
        session.answer(text="done")
        session.claim(n + 2)
        session.tell(f"message {n}")
        session.prepare()
    session.answer(text="done")
    told = words(say(session))
    assert "4 earlier turns ended: 4 completed." in told
    assert "It was claimed 9 times; the last 8 are told here." in told
    assert "took it over" not in told  # each came to a session at rest


def test_a_call_that_needs_approval_and_one_of_the_client() -> None:
    session = Machine()
    held = replace(call("pay", {"x": 1}, effect=ONCE), needs_approval=True)
    session.answer(held, replace(call("ask"), client=True))
    shown = say(session, timer_at_us=5 * SECOND)
    assert "It waits for a decision on calls that need approval (t1_c1_1)." in words(shown)
    assert "It waits for results of calls which the client carries out (t1_c1_2)." in words(shown)
    assert "A timer wakes it on 1970-01-01 00:00:05 UTC." in str(shown["wakes"])
    assert "GET /v1/approvals?session=ses_1" in str(shown["todo"])
    assert "tool_results" in str(shown["todo"])
    (asked,) = [c.approval for c in session.state.calls if c.approval]
    session.give(ApprovalGiven(SECOND, asked.approval_id, Choice.DENY))
    shown = say(session)
    assert "a person denied t1_c1_1" in words(shown).lower()
    assert "It waits for results of calls which the client carries out" in words(shown)
    assert "tool_results" in str(shown["todo"])
    assert "approvals" not in str(shown["todo"])


def test_who_decided_on_a_call_is_told_as_it_was() -> None:
    session = Machine()
    held = [replace(call("pay", {"x": n}, effect=ONCE), needs_approval=True) for n in (1, 2)]
    session.answer(*held)
    session.approve("t1_c1_1", {"x": 3})
    session.fail("t1_c1_1", FaultKind.TIMEOUT)
    session.pass_s(100_000)
    session.ring("approval")
    told = words(say(session))
    assert "person approved t1_c1_1 with changed arguments" in told
    assert "nobody decided on t1_c1_2 in time" in told
    asked = Machine()
    asked.answer(replace(call("pay", effect=ONCE), checkable=True))
    asked.fail("pay", FaultKind.TIMEOUT)
    asked.check("pay", happened=True)
    told = words(say(asked))
    assert "the tool, asked about it, said that t1_c1_1 happened" in told
    assert "person" not in told


def test_a_tool_that_is_asked_what_became_of_a_call() -> None:
    session = Machine()
    session.answer(replace(call("pay", effect=ONCE), checkable=True))
    session.fail("pay", FaultKind.TIMEOUT)
    shown = say(session, owner="wrk_1", owner_alive=True)
    assert "It asks the tool what became of t1_c1_1" in words(shown)
    assert "it failed after it was sent, on" in words(shown)
    assert shown["todo"] == []
    (check,) = owed(session.state)
    session.give(StatusChecked(SECOND, check.key, "t1_c1_1", None, None, 5, None, 0.0))
    assert "attempt 2" in owned(session)


@pytest.mark.parametrize(("workers", "said"), [(True, "takes it over"), (False, "No worker")])
def test_a_session_whose_owner_is_lost_says_who_comes(*, workers: bool, said: str) -> None:
    shown = say(Machine(), owner="wrk_1", workers=workers)
    assert "Its owner wrk_1 (epoch 1) lost its lease" in words(shown)
    assert said in str(shown["wakes"])
    assert ("surefoot serve --role worker" in str(shown["todo"])) is not workers


def test_a_due_session_a_stuck_one_and_one_that_kills_its_owners() -> None:
    assert "Nobody owns it; it is due." in words(say(Machine(), waking=True))
    stuck = say(Machine())
    assert "it is stuck" in words(stuck)
    assert "/v1/sessions/ses_1/cancel" in str(stuck["todo"])
    rested = Machine()
    rested.answer(text="done")
    shown = words(say(rested, inbox_head=2, inbox_seen=1, claims=3))
    assert "it is stuck" in shown
    assert "1 request in its inbox was not taken yet." in shown
    assert "It was claimed 3 times running without an answer" in shown


def test_how_to_go_on_depends_on_the_end() -> None:
    done = Machine()
    done.answer(text="done")
    assert say(done)["todo"] == ["A message starts its next turn."]
    done.close()
    assert "It is closed: no turn will follow." in words(say(done))
    failed = Machine()
    for _ in range(3):
        failed.model_fails(Fault.of(FaultKind.UNAVAILABLE, "away."))
    told = say(failed)
    assert "as failed (model_unavailable): away." in words(told)
    assert "Once the cause is mended" in str(told["todo"])
    unsafe = Machine()
    unsafe.model_fails(Fault.of(FaultKind.SECURITY, "no"))
    assert "It takes no message any more" in str(say(unsafe)["todo"])


def test_of_what_cannot_be_read_the_row_tells() -> None:
    session = Machine()
    session.answer(text="done")
    shown = explained(
        Story(),
        Known(
            row=replace(READY, facts=facts_of(session.state)),
            now_us=SECOND,
            workers_alive=True,
            closed="The session's content was erased.",
        ),
    )
    told = words(shown)
    assert told.startswith("The session's content was erased. Its row alone says: completed")
    assert "A message starts its next turn." in told


def test_a_fork_says_of_what() -> None:
    session = Machine()
    session.tell("x", Policy.ENQUEUE)
    first = session.events[0]
    assert isinstance(first.body, SessionCreated)
    session.events[0] = replace(first, body=replace(first.body, parent="ses_0"))
    assert "as a fork of ses_0, for the agent default version 1" in words(say(session))


def test_a_fork_was_taken_over_from_nobody() -> None:
    """Whoever owned the other session is none of its owners, and lost nothing."""
    parent = Machine()
    parent.answer(call("pay", effect=ONCE))
    child = fork(parent, at_seq=parent.state.seq)
    child.claim()
    shown = say(child)
    assert shown["owners"] == [
        {"worker": "wrk_1", "epoch": 1, "at": moment(child.now_us), "took_over": False}
    ]
    assert "took it over" not in words(shown)
    assert "at its event" in words(shown)


def test_a_session_without_content_takes_no_message() -> None:
    session = Machine()
    session.answer(text="done")
    gone = say(session, closed="Erased.", key=WrappedKey("k", b""))
    assert gone["todo"] == ["It takes nothing any more: create another session."]
