"""Where each bound lies, to the last token."""

import pytest

from app.core.events import Limits, ModelRef, SessionCreated, Usage
from app.core.evolve import evolve, place
from app.core.faults import Fault, FaultKind, Retry, RetryPolicy, ToModel, respond
from app.core.guards import affordable, closing_affordable, cost_of, fits_window, reserve
from app.core.ids import mint
from app.core.upcasters import upcast
from tests.core.machine_kit import SECOND, Machine


def test_a_call_may_take_the_last_token_of_the_budget() -> None:
    limits, spent = Limits(token_budget=8_000), Usage(3_000, 500, model_calls=1)
    room = 8_000 - 3_500 - reserve(8_000)
    assert affordable(limits, spent, room)
    assert not affordable(limits, spent, room + 1)
    closing = next(n for n in range(8_000) if not closing_affordable(limits, spent, n))
    assert closing_affordable(limits, spent, closing - 1)
    assert closing > room, "the reserve buys it"


def test_a_request_may_take_the_last_token_of_the_window() -> None:
    model = ModelRef("m", context_window=8_000)
    assert fits_window(model, 7_000)
    assert not fits_window(model, 7_001)


def test_the_reserve_is_an_eighth_and_never_more_than_4096() -> None:
    assert [reserve(n) for n in (800, 32_768, 32_776, 1_000_000)] == [100, 4_096, 4_096, 4_096]


def test_input_that_was_all_cached_costs_only_that() -> None:
    model = ModelRef("m", price_input=1_000_000.0, price_cached=1.0, price_output=2.0)
    assert cost_of(model, Usage(1_000, 0, cached_tokens=1_000)) == pytest.approx(0.001)
    assert cost_of(model, Usage(1_000, 0, cached_tokens=2_000)) == pytest.approx(0.002)


def test_the_first_event_stands_before_any_turn() -> None:
    created = Machine().events[0].body
    assert isinstance(created, SessionCreated)
    event = place(None, created, SECOND)
    assert (event.seq, event.turn, event.step, event.phase, event.at_us) == (1, 0, 0, None, SECOND)
    assert evolve(None, event).at_us == SECOND


@pytest.mark.req("TOOL-9")
def test_who_asks_for_a_wait_that_is_too_long_is_not_asked_again() -> None:
    """Random waits seldom come near this bound."""
    policy = RetryPolicy(max_attempts=9)
    longest = policy.longest_wait_us
    for asked, response in ((longest, Retry(longest)), (longest + 1, ToModel())):
        fault = Fault.of(FaultKind.RATE_LIMITED, "slow down", retry_after_us=asked)
        assert respond(fault, 1, policy, 0.5) == response


def test_an_id_is_its_milliseconds_and_ten_bytes_of_chance() -> None:
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    at_us, entropy = 1_796_140_800_123_999, bytes(range(200, 212))
    prefix, _, text = mint("ses", at_us=at_us, entropy=entropy).partition("_")
    value = 0
    for char in text:
        value = value * 32 + alphabet.index(char)
    assert (prefix, len(text)) == ("ses", 26)
    assert value >> 80 == 1_796_140_800_123
    assert value & (1 << 80) - 1 == int.from_bytes(entropy[:10], "big")


@pytest.mark.parametrize("asked", ["steer", "interrupt", "enqueue", "reject"])
def test_a_message_of_the_release_before_was_enqueued_whatever_was_asked(asked: str) -> None:
    lifted = upcast("message.received", 1, {"text": "x", "policy": asked}, to=2)
    assert lifted["policy"] == ("reject" if asked == "reject" else "enqueue")
