"""What is sent to the model, and what it is reckoned to cost."""

from dataclasses import replace

import pytest

from app.core.context import (
    CLOSING_NOTE,
    CLOSING_NOTE_TOKENS,
    assemble,
    digest,
    fact_of,
    next_input,
    request_hash,
)
from app.core.effects import CallModel
from app.core.events import Limits, Purpose, Usage
from app.core.messages import AssistantMessage, Message, MessageCall, ToolMessage, UserMessage
from app.core.plan import owed
from tests.core.machine_kit import Machine, call


@pytest.mark.case("C046")
def test_a_history_that_fits_is_sent_as_it_is() -> None:
    session = Machine()
    session.step_ok(call("echo", {"text": "x"}), output="the result")
    sent = assemble(session.state, Purpose.STEP)
    assert sent == session.state.history
    assert [type(m) for m in sent] == [UserMessage, AssistantMessage, ToolMessage]


@pytest.mark.case("C049")
def test_neighbouring_user_messages_become_one() -> None:
    session = Machine(task="first")
    session.cancel()
    session.tell("second")
    session.prepare()
    (only,) = assemble(session.state, Purpose.STEP)
    assert only == UserMessage("first\n\nsecond", 9, note=False)
    session.cancel()
    session.tell("third")
    session.prepare()
    assert len(assemble(session.state, Purpose.STEP)) == 1


def test_only_notes_together_are_a_note() -> None:
    """Who asks for what the user said last must not be shown a note, nor miss what was said."""
    said, noted = UserMessage("said", 4), UserMessage("noted", 5, note=True)
    for pair, note in (((said, noted), False), ((noted, said), False), ((noted, noted), True)):
        state = replace(Machine().state, history=pair)
        (only,) = assemble(state, Purpose.STEP)
        assert only == UserMessage(f"{pair[0].text}\n\n{pair[1].text}", only.tokens, note=note)


def test_the_closing_request_ends_with_its_note_and_costs_no_tools() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"))
    closing = assemble(session.state, Purpose.CLOSING)
    assert closing[-1] == UserMessage(CLOSING_NOTE, CLOSING_NOTE_TOKENS, note=True)
    full = next_input(session.state, Purpose.STEP)
    assert next_input(session.state, Purpose.CLOSING) == full - 50 + CLOSING_NOTE_TOKENS + 4


@pytest.mark.req("CTX-1")
def test_the_size_of_the_next_request_is_the_report_and_what_came_since() -> None:
    session = Machine()
    assert next_input(session.state, Purpose.STEP) == 159
    session.answer(call("echo"), usage=Usage(500, 30, model_calls=1))
    assert next_input(session.state, Purpose.STEP) == 500 + 30 + 4
    session.ok("echo")
    assert next_input(session.state, Purpose.STEP) == 534 + 8 + 4
    session.answer(call("search"))
    assert next_input(session.state, Purpose.STEP) == 546 + 10 + 4


@pytest.mark.req("CTX-1")
def test_a_report_on_the_closing_call_lacks_the_tools() -> None:
    session = Machine(Limits(max_steps=1))
    session.step_ok(call("echo"))
    session.answer(text="end", usage=Usage(300, 10, model_calls=1))
    assert session.state.context_tokens == 300 + 10 + 4 + 50


@pytest.mark.req("CTX-1")
def test_a_digest_in_the_history_is_counted() -> None:
    session = Machine()
    session.step_ok(call("echo"), output="the fact")
    before = session.state.context_tokens
    session.cancel()
    last = session.state.history[-1]
    assert isinstance(last, AssistantMessage)
    assert "the fact" in last.text
    assert session.state.context_tokens == before + last.tokens + 4
    assert last.tokens >= 8


def test_a_long_fact_is_cut_with_its_share_of_tokens() -> None:
    session = Machine()
    session.step_ok(call("echo"), output="x" * 4_000)
    action = replace(session.state.actions[0], tokens=1_000)
    fact = fact_of(action)
    assert len(fact.text) < 450
    assert fact.text.endswith("(4000 characters)")
    assert fact.tokens == 112
    assert digest((), "") == ""
    assert digest((fact,), " words ").startswith("words\n\nConfirmed so far:\n- echo: xxx")


def test_the_hash_tells_requests_apart() -> None:
    calls = (MessageCall("t1_c1_1", "w", "echo", "{}"),)
    some = [
        (UserMessage("a", 1), AssistantMessage("b", 1)),
        (UserMessage("aab", 1),),
        (UserMessage("a", 1), AssistantMessage("b", 1, calls)),
        (UserMessage("a", 1), ToolMessage("t1_c1_1", "w", "echo", "b", 1)),
        (UserMessage("4:user", 1),),
        (UserMessage("a\ud83c", 1),),
        (),
    ]
    assert len({request_hash(messages) for messages in some}) == len(some)
    again = (UserMessage("a", 9), AssistantMessage("b", 7, reasoning="thought"))
    assert request_hash(again) == request_hash(some[0])


def _is_paired(messages: tuple[Message, ...]) -> bool:
    """Return whether each call has its results right behind it, and no result is without one."""
    missing: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.wire_id not in missing:
                return False
            missing.remove(message.wire_id)
        elif missing:
            return False
        elif isinstance(message, AssistantMessage):
            missing = [call.wire_id for call in message.calls]
    return not missing


@pytest.mark.req("LOOP-4", "CTX-7")
@pytest.mark.case("C044")
@pytest.mark.parametrize("budget", [*range(1, 1500, 47), 2_000, 5_000, 10_000])
def test_at_no_budget_a_call_is_parted_from_its_result(budget: int) -> None:
    """Twelve turns of a call and a result each, or of what the budget lets through."""
    session = Machine(Limits(token_budget=budget))
    for turn in range(1, 13):
        while isinstance(effect := next(iter(owed(session.state)), None), CallModel):
            assert _is_paired(assemble(session.state, effect.purpose))
            last = session.state.history[-1]
            if isinstance(last, UserMessage) and effect.purpose is Purpose.STEP:
                session.step_ok(call("echo", {"n": turn}))
            else:
                session.answer(text="so it is")
        assert len(session.ends()) == turn
        session.tell(f"turn {turn}")
        session.prepare()


def test_a_fact_that_just_fits_is_whole_and_a_digest_of_facts_alone_begins_with_them() -> None:
    session = Machine()
    session.step_ok(call("echo"), output="x" * 400)
    fact = fact_of(session.state.actions[0])
    assert fact.text == "echo: " + "x" * 400
    assert digest((fact,), " ") == f"Confirmed so far:\n- {fact.text}"
