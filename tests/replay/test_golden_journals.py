"""Journals of every release: today's code folds them to what they meant, and loses nothing.

A journal stays here for ever. When an event's shape changes, its old journals show whether the
upcasters lift them. A release that writes a new version of any event (`JOURNAL_V`) adds a folder
`v<JOURNAL_V>` with journals as `GET /v1/sessions/{id}/events` gives them, an event a line, which
hold every event that is new in it; and says below what they mean.
"""

import json
from pathlib import Path

import pytest

from app.core.evolve import fold
from app.core.lifecycle import Status
from app.core.messages import UserMessage
from app.core.plan import owed, resting
from app.core.state import State
from app.storage.codec import JsonCodec

HERE = Path(__file__).parent
JOURNALS = sorted(HERE.glob("v*/*.jsonl"))


def folded(path: Path) -> State:
    codec = JsonCodec()
    state = fold(codec.decode(line.encode()) for line in path.read_text().splitlines())
    assert state is not None
    return state


@pytest.mark.req("LOOP-1", "STATE-3")
@pytest.mark.parametrize("path", JOURNALS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_journal_folds_and_its_session_can_go_on(path: Path) -> None:
    state = folded(path)
    assert owed(state) == ()
    assert resting(state) is not None
    assert state.ended is not None
    assert state.ended.result.text


def test_they_mean_what_they_meant() -> None:
    shop = folded(HERE / "v1" / "shop_price.jsonl")
    assert shop.ended is not None
    assert shop.ended.result.text.endswith("189.2")
    assert (shop.turn, shop.step, shop.usage.model_calls, shop.usage.tool_calls) == (1, 2, 2, 1)
    closed = folded(HERE / "v1" / "two_turns_closed.jsonl")
    assert (closed.turn, closed.closed, len(closed.history)) == (2, True, 6)
    refused = folded(HERE / "v1" / "refused_tool.jsonl")
    assert refused.ended is not None
    assert refused.ended.status is Status.COMPLETED
    assert refused.errors_running == 1


@pytest.mark.req("API-7")
def test_a_message_that_an_older_release_enqueued_was_enqueued() -> None:
    """It was sent by a process of the next release, to steer the turn that the older one ran."""
    state = folded(HERE / "v1" / "steered_while_upgrading.jsonl")
    said = [message.text for message in state.history if isinstance(message, UserMessage)]
    assert said == ["look", "and now"]
    assert (state.turn, state.queue) == (2, ())


@pytest.mark.parametrize("path", JOURNALS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_is_written_again_says_the_same(path: Path) -> None:
    """Of an event at today's version; fields that were added since may be there besides."""
    codec = JsonCodec()
    for line in path.read_text().splitlines():
        event = codec.decode(line.encode())
        then, now = json.loads(line), json.loads(codec.encode(event))
        if then["v"] == event.body.V:
            assert {k: v for k, v in now.items() if k != "data"} == {
                k: v for k, v in then.items() if k != "data"
            }
            assert then["data"].items() <= now["data"].items() or then["data"] == now["data"]
