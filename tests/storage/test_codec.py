"""The codec: every event and state comes back as it was, whatever it holds."""

import dataclasses
import json
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import events as events_module
from app.core import faults, messages
from app.core import state as state_module
from app.core.events import (
    BODIES,
    Body,
    Event,
    Limits,
    ModelRef,
    Outcome,
    PhaseEntered,
    PromptRef,
    SessionCreated,
    ToolFinished,
    ToolIntended,
)
from app.core.lifecycle import Phase
from app.core.messages import AssistantMessage, MessageCall, ToolMessage, UserMessage
from app.core.state import State
from app.core.upcasters import UnreadableEventError
from app.runtime.times import from_rfc3339, rfc3339
from app.storage.codec import JsonCodec

CODEC = JsonCodec()
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TIMES = st.integers(0, 253_402_300_799_999_999)
for kind, values in (
    (str, TEXT),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (object, JSON),
):
    st.register_type_strategy(kind, values)


def _fill_every_field(*modules: ModuleType) -> None:
    """Left alone, hypothesis fills only the fields without a default."""
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                given_too = {field.name: ... for field in dataclasses.fields(kind)}
                st.register_type_strategy(kind, st.builds(kind, **given_too))


_fill_every_field(faults, messages, events_module, state_module)


def events(body: st.SearchStrategy[Body]) -> st.SearchStrategy[Event]:
    numbers = st.integers(0, 2**53)
    phases = st.none() | st.sampled_from(Phase)
    return st.builds(Event, numbers, numbers, numbers, phases, TIMES, body)


@pytest.mark.parametrize("kind", BODIES.values(), ids=BODIES)
def test_every_event_comes_back(kind: type[Body]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(events(st.from_type(kind)))
    def check(event: Event) -> None:
        payload = CODEC.encode(event)
        assert CODEC.decode(payload) == event
        wire = json.loads(payload)
        assert list(wire) == ["seq", "type", "v", "at", "turn", "step", "phase", "data"]

    check()


def test_the_wire_is_that_of_the_contract() -> None:
    event = Event(7, 1, 2, Phase.ACT, 1_700_000_000_000_001, PhaseEntered(None, Phase.ACT))
    assert json.loads(CODEC.encode(event)) == {
        "seq": 7,
        "type": "phase.entered",
        "v": 1,
        "at": "2023-11-14T22:13:20.000001Z",
        "turn": 1,
        "step": 2,
        "phase": "ACT",
        "data": {"from": None, "to": "ACT"},
    }


@given(TIMES)
def test_times_are_exact(at_us: int) -> None:
    assert from_rfc3339(rfc3339(at_us)) == at_us


def finished(output: object) -> Event:
    return Event(1, 1, 1, Phase.ACT, 0, ToolFinished("t1_c1_0", "x", Outcome.OK, output))


@pytest.mark.case("C118", "C120")
def test_what_json_cannot_carry_is_replaced_and_never_refused() -> None:
    event = finished({"a\ud83c": ["x\udf78", "🎉"], "n": float("nan"), "big": 10**6000})
    strict = json.loads(CODEC.encode(event), parse_constant=pytest.fail)
    output = strict["data"]["output"]
    assert output["a\N{REPLACEMENT CHARACTER}"] == ["x\N{REPLACEMENT CHARACTER}", "🎉"]
    assert output["n"] is None
    assert output["big"] == hex(10**6000)


@pytest.mark.case("C116")
def test_nul_in_text_and_huge_integers_pass_unchanged() -> None:
    event = finished({"nul\0": "a\0b", "big": -(10**400)})
    assert CODEC.decode(CODEC.encode(event)) == event


def test_what_is_not_known_is_a_typed_error() -> None:
    payload = CODEC.encode(finished(None))
    with pytest.raises(UnreadableEventError):
        CODEC.decode(payload.replace(b"tool.finished", b"tool.imagined"))
    with pytest.raises(UnreadableEventError):
        CODEC.decode(payload.replace(b'"v":1', b'"v":99'))


def test_fields_of_a_newer_release_are_passed_over() -> None:
    payload = CODEC.encode(finished("x")).replace(b'"data":{', b'"data":{"later":[1],')
    assert CODEC.decode(payload) == finished("x")


CREATED = SessionCreated(
    "ses_1", "default", 1, "react", ModelRef("m"), PromptRef("p", 1, "00", 3), Limits()
)


def test_a_state_comes_back() -> None:
    history = (
        UserMessage("hi", 1, note=True),
        AssistantMessage("", 2, (MessageCall("t1_c1_0", "w", "x", "{}"),), "thought"),
        ToolMessage("t1_c1_0", "w", "x", "out", 3),
    )
    state = State(CREATED, Limits(), 5, history=history, nudges=("a",))
    assert CODEC.decode_state(CODEC.encode_state(state)) == state
    broken = replace(state, history=(UserMessage("x\ud83c", 1),))
    assert CODEC.decode_state(CODEC.encode_state(broken)).history == (
        UserMessage("x\N{REPLACEMENT CHARACTER}", 1),
    )


@settings(max_examples=40, deadline=None)
@given(st.from_type(State))
def test_every_state_comes_back(state: State) -> None:
    assert CODEC.decode_state(CODEC.encode_state(state)) == state


def test_the_arguments_of_a_call_keep_their_order_and_numbers() -> None:
    arguments: dict[str, object] = {"b": 1.0, "a": 1, "n": 12345678901234567890123}
    event = Event(1, 1, 1, Phase.ACT, 0, ToolIntended("c", "x", arguments, "once", "k"))  # type: ignore[arg-type]
    assert b'{"b":1.0,"a":1,"n":12345678901234567890123}' in CODEC.encode(event)
