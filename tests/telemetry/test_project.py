"""Spans as a projection of the journal: their number, their tree, their names, their ids."""

import pytest

from app.core.events import EffectClass, Limits, PhaseEntered, Trace
from app.core.faults import FaultKind
from app.core.inputs import CancelAsked, ResumeAsked, TimerRang, TurnPrepared, Verified
from app.telemetry import names
from app.telemetry.project import SpanRecord
from tests.telemetry.journey import ROOT_ID, TRACE_ID, Journey, five_and_four, made, shop_price
from tests.telemetry.rig import Rig, assert_one_tree, spans_of


def _named(spans: list[SpanRecord], prefix: str) -> list[SpanRecord]:
    return [span for span in spans if span.name.split()[0] == prefix]


@pytest.mark.req("OBS-1", "LOOP-2", "API-6")
def test_shop_price_makes_exactly_these_spans() -> None:
    spans = spans_of(shop_price())
    assert [span.name for span in spans] == [
        "observe",
        "chat gpt-x",
        "think",
        "execute_tool get_price",
        "act",
        "reflect",
        "observe",
        "chat gpt-x",
        "think",
        "reflect",
        "invoke_agent default",
    ]
    assert_one_tree(spans)
    by_id = {span.span_id: span for span in spans}
    assert {by_id[s.parent_id or ""].name for s in _named(spans, "chat")} == {"think"}
    assert {by_id[s.parent_id or ""].name for s in _named(spans, "execute_tool")} == {"act"}
    assert {s.parent_id for s in spans if s.name in {"observe", "act"}} == {ROOT_ID}


@pytest.mark.req("OBS-1")
def test_five_model_calls_and_four_tools_make_29_spans() -> None:
    spans = spans_of(five_and_four())
    assert len(spans) == len({span.span_id for span in spans}) == 29
    assert_one_tree(spans)


@pytest.mark.req("LOOP-2")
def test_each_transition_out_of_a_phase_has_its_span_with_four_attributes() -> None:
    journey = five_and_four()
    events = [e for commit in journey.commits for e in commit.events]
    moves = [e.body for e in events if isinstance(e.body, PhaseEntered)]
    phases = [s for s in spans_of(journey) if names.STATE_FROM in s.attributes]
    assert [(s.attributes[names.STATE_FROM], s.attributes[names.STATE_TO]) for s in phases] == [
        (m.source, m.target) for m in moves if m.source is not None
    ]
    assert all(len(s.attributes) == 4 for s in phases)


def test_the_root_carries_the_turn() -> None:
    root = spans_of(shop_price())[-1]
    assert (root.trace_id, root.span_id) == (TRACE_ID, ROOT_ID)
    assert root.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.agent.name": "default",
        "gen_ai.agent.version": "3",
        "gen_ai.conversation.id": "ses_1",
        "gen_ai.prompt.name": "default",
        "gen_ai.prompt.version": "1",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 120,
        "surefoot.turn": 1,
        "surefoot.epoch": 1,
        "surefoot.stop_reason": "final_answer",
    }
    assert not root.failed


def test_parallel_tools_each_have_a_span_under_one_act() -> None:
    journey = Journey()
    first, second = made(0, "a", 1), made(1, "b", 1)
    journey.answer(calls=[first, second])
    journey.result(second)
    journey.result(first)
    journey.answer("Done.")
    spans = spans_of(journey)
    assert_one_tree(spans)
    tools = _named(spans, "execute_tool")
    assert [t.name for t in tools] == ["execute_tool b", "execute_tool a"]
    assert len({t.parent_id for t in tools}) == 1


def test_every_attempt_at_a_model_call_is_a_span() -> None:
    journey = Journey()
    journey.model_fails()
    journey.model_fails(FaultKind.RATE_LIMITED)
    journey.now_us += 2_000_000
    journey.answer("Done.")
    chats = _named(spans_of(journey), "chat")
    assert [c.attributes[names.ATTEMPT] for c in chats] == [1, 2, 3]
    assert [c.attributes.get(names.ERROR_TYPE) for c in chats] == [
        "unavailable",
        "rate_limited",
        None,
    ]
    assert [c.failed for c in chats] == [True, True, False]
    assert len({c.span_id for c in chats}) == 3
    assert chats[0].end_us < chats[1].start_us, "the wait between two attempts is in none of them"


def test_every_attempt_at_a_tool_call_is_a_span() -> None:
    journey = Journey()
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    journey.tool_fails(call)
    journey.now_us += 1_000_000
    journey.tool_fails(call, FaultKind.NOT_FOUND)
    journey.answer("Done.")
    spans = spans_of(journey)
    tools = _named(spans, "execute_tool")
    assert [t.attributes[names.ERROR_TYPE] for t in tools] == ["unavailable", "not_found"]
    assert_one_tree(spans)


@pytest.mark.case("C137")
def test_an_abandoned_model_call_is_one_span_with_its_reason() -> None:
    journey = Journey()
    journey.give(CancelAsked(journey.tick(70)))
    spans = spans_of(journey)
    (chat,) = _named(spans, "chat")
    assert chat.failed
    assert chat.attributes[names.ERROR_TYPE] == "cancelled"
    assert_one_tree(spans)
    assert not spans[-1].failed, "a cancelled turn is not an error"


@pytest.mark.case("C137")
def test_a_turn_cancelled_while_it_waits_to_try_again_has_no_span_of_the_try_that_never_was() -> (
    None
):
    journey = Journey()
    journey.model_fails()
    journey.give(CancelAsked(journey.tick(1)))
    spans = spans_of(journey)
    assert len(_named(spans, "chat")) == 1
    assert_one_tree(spans)


def test_a_tool_call_cancelled_before_its_next_attempt_has_no_span_of_that_attempt() -> None:
    journey = Journey()
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    journey.tool_fails(call)
    journey.give(CancelAsked(journey.tick(1)))
    spans = spans_of(journey)
    assert [t.attributes[names.ATTEMPT] for t in _named(spans, "execute_tool")] == [1]
    assert_one_tree(spans)


def test_a_failed_turn_is_an_error_with_its_kind() -> None:
    journey = Journey()
    for _ in range(3):
        journey.model_fails()
        journey.now_us += 9_000_000
    root = spans_of(journey)[-1]
    assert root.failed
    assert root.attributes[names.ERROR_TYPE] == "unavailable"
    assert root.attributes[names.STOP_REASON] == "model_unavailable"


def test_a_stopped_turn_is_no_error_and_names_its_guard() -> None:
    journey = Journey(limits=Limits(max_steps=1))
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    journey.result(call)
    journey.answer("The best so far.")
    spans = spans_of(journey)
    assert not spans[-1].failed
    events = [event for span in spans for event in span.events]
    assert [(e.name, dict(e.attributes)) for e in events] == [
        (names.GUARD_TRIPPED, {names.GUARD: "max_steps"})
    ]


@pytest.mark.case("C139")
@pytest.mark.req("OBS-1")
def test_a_takeover_at_any_commit_leaves_one_tree() -> None:
    whole = {span.span_id: span for span in spans_of(five_and_four())}
    commits = five_and_four().commits
    for cut in range(1, len(commits)):
        first, second = Rig(), Rig()
        first.see(commits[:cut])
        for commit in commits[1:cut]:
            second.observer.replayed(commit.before, commit.events, commit.after)
        second.see(commits[cut:])
        merged = {s.span_id: s for s in (*first.kept.spans, *second.kept.spans)}
        assert merged == whole, "same ids and the same content, whoever tells them"
        again = {s.span_id: s for s in second.kept.spans}
        assert again == whole, "the successor alone is enough when the first one's were lost"


def test_a_replay_in_one_piece_gives_the_same_spans() -> None:
    journey = five_and_four()
    events = [e for commit in journey.commits for e in commit.events]
    rig = Rig()
    rig.observer.replayed(None, events, journey.state)
    assert rig.kept.spans == spans_of(journey)
    assert rig.lines() == []
    assert "surefoot_turns_total{" not in rig.text()


def _waiting_for_verification() -> Journey:
    journey = Journey()
    call = made(0, "pay", 1, effect=EffectClass.ONCE)
    journey.answer(calls=[call])
    journey.now_us += 20_000_000
    journey.claim("wrk_2", 2)
    journey.now_us += 40_000_000
    journey.give(TimerRang(journey.now_us, "verification"))
    return journey


def test_waiting_for_a_person_is_a_span_and_no_error() -> None:
    journey = _waiting_for_verification()
    journey.now_us += 3_600_000_000
    journey.give(Verified(journey.now_us, "t1_c1_0", happened=True, output=None, tokens=5))
    journey.answer("Done.")
    spans = spans_of(journey)
    assert_one_tree(spans)
    (waiting,) = _named(spans, "waiting")
    assert not waiting.failed
    assert waiting.end_us - waiting.start_us == 3_600_000_000
    (tool,) = _named(spans, "execute_tool")
    assert tool.attributes[names.ERROR_TYPE] == "unknown_outcome"
    assert [s.name for s in spans if s.failed] == ["execute_tool pay"]
    assert spans[-1].attributes[names.EPOCH] == 2


def test_a_resumed_turn_is_a_trace_of_its_own_linked_to_the_old_one() -> None:
    journey = Journey(limits=Limits(max_steps=1))
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    journey.result(call)
    journey.answer("The best so far.")
    journey.give(ResumeAsked(journey.tick(), Limits(max_steps=5)))
    trace = Trace("1" * 32, "2" * 16)
    journey.give(TurnPrepared(journey.tick(), trace, (), 0, "Go on.", 4))
    journey.answer("Done.")
    spans = [s for s in spans_of(journey) if s.trace_id == "1" * 32]
    assert_one_tree(spans)
    assert spans[-1].links == (f"00-{TRACE_ID}-{ROOT_ID}-01",)
    assert spans[-1].attributes[names.TURN] == 2


def test_the_callers_traceparent_becomes_a_link() -> None:
    link = f"00-{'a' * 32}-{'b' * 16}-01"
    journey = Journey(link=link)
    journey.answer("Hi.")
    assert spans_of(journey)[-1].links == (link,)


def test_an_unsampled_trace_has_no_spans_but_a_traceparent() -> None:
    journey = Journey(sampled=False)
    rig = Rig()
    assert rig.observer.traceparent(journey.state, journey.keys[0]).endswith("-00")
    journey.answer("Hi.")
    rig.see(journey.commits)
    assert rig.kept.spans == []
    assert len(rig.lines()) > 4


def test_requests_name_the_span_that_they_will_be() -> None:
    journey = Journey()
    rig = Rig()
    asked = [rig.observer.traceparent(journey.state, journey.keys[0])]
    journey.model_fails()
    asked.append(rig.observer.traceparent(journey.state, journey.keys[0]))
    journey.now_us += 2_000_000
    call = made(0, "a", 1)
    journey.answer(calls=[call])
    asked.append(rig.observer.traceparent(journey.state, journey.keys[0]))
    journey.result(call)
    journey.answer("Done.")
    spans = spans_of(journey)
    told = [*_named(spans, "chat")[:2], *_named(spans, "execute_tool")]
    assert asked == [f"00-{TRACE_ID}-{span.span_id}-01" for span in told]


def test_every_attribute_is_in_the_table() -> None:
    journeys = [shop_price(), _waiting_for_verification()]
    failing = Journey()
    failing.model_fails(FaultKind.REFUSED_REQUEST)
    for journey in (*journeys, failing):
        for span in spans_of(journey):
            kind = span.name.split()[0]
            table = {names.INVOKE_AGENT: "root", names.CHAT: kind, names.EXECUTE_TOOL: kind}
            allowed = names.SPAN_ATTRIBUTES[table.get(kind, "phase")]
            assert set(span.attributes) <= allowed
