"""Replay proposes inputs with all that was in them, or it would see a change where none was."""

from dataclasses import replace

import pytest

from app.core.events import Choice, ModelFailed, SessionForked
from app.core.evolve import evolve
from app.core.faults import Fault, FaultKind
from app.core.inputs import ApprovalGiven, ClientAnswered, ToolFaulted, ToolReturned
from app.core.phases.forking import Forking, forked
from app.core.replay import replay
from tests.core.forks import fork
from tests.core.machine_kit import ONCE, Machine, call
from tests.core.test_replay import same

pytestmark = pytest.mark.req("STATE-6")


def test_what_the_model_read_is_part_of_a_result() -> None:
    session = Machine()
    session.answer(call("echo"), call("locate", client=True))
    effect = session.owes_tool("echo")
    now, call_id = session.now_us, effect.call.call_id
    session.give(ToolReturned(now, effect.key, call_id, {"all": 1}, "some", 2, "d", 1.0))
    session.give(ClientAnswered(now, "t1_c1_2", {"all": 2}, None, 7, "d", content="other"))
    assert [r.content for r in session.results()] == ["some", "other"]
    same(session)


def test_words_of_a_denial_may_look_like_ours() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE, needs_approval=True))
    asked = session.open("pay").approval
    assert asked is not None
    words = "no. They say: yes"
    session.give(ApprovalGiven(session.now_us, asked.approval_id, Choice.DENY, words))
    same(session)


def test_a_fork_to_another_model_and_prompt() -> None:
    parent = Machine()
    parent.answer(text="done")
    child = fork(parent, len(parent.events), "go on")
    cut = next(n for n, e in enumerate(child.events) if isinstance(e.body, SessionForked))
    state = None
    for event in child.events[:cut]:
        state = evolve(state, event)
    assert state is not None
    asked = Forking(state.at_us, "ses_1", state.seq, None, None, "other", "default@2")
    made = forked(state, asked)
    assert isinstance(made[0].body, SessionForked)
    assert (made[0].body.model, made[0].body.prompt) == ("other", "default@2")
    assert replay([*child.events[:cut], *made]).divergence is None


def test_twice_the_shortest_wait_is_as_long_as_chance_can_make_it() -> None:
    session = Machine()
    session.model_fails(Fault.of(FaultKind.UNAVAILABLE, "busy"))
    *before, failed = session.events
    assert isinstance(failed.body, ModelFailed)
    assert failed.body.retry_at_us is not None
    wait = failed.body.retry_at_us - failed.at_us
    longer = replace(failed.body, retry_at_us=failed.at_us + 2 * wait + 1)
    found = replay([*before, replace(failed, body=longer)]).divergence
    assert found is not None
    assert found.seq == failed.seq


@pytest.mark.parametrize("jitter", [0.0, 0.4, 0.999])
def test_the_chance_in_the_wait_of_a_tool_call_is_no_divergence(jitter: float) -> None:
    session = Machine()
    session.answer(call("echo"))
    effect, fault = session.owes_tool("echo"), Fault.of(FaultKind.UNAVAILABLE, "busy")
    call_id = effect.call.call_id
    session.give(ToolFaulted(session.now_us, effect.key, call_id, fault, 20, 2.0, jitter))
    session.ok("echo")
    same(session)
