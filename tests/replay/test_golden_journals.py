"""Journals of every release: today's code folds them to what they meant, and loses nothing.

A journal stays here for ever. When an event's shape changes, its old journals show whether the
upcasters lift them.
"""

import json
from pathlib import Path

import pytest

from app.core.evolve import fold
from app.core.lifecycle import Status
from app.core.plan import owed, resting
from app.core.replay import replay
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


@pytest.mark.req("STATE-6")
@pytest.mark.parametrize("path", JOURNALS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_journal_is_decided_today_as_it_was(path: Path) -> None:
    """Where a release decides otherwise on purpose, its journals are to be named here."""
    codec = JsonCodec()
    found = replay(codec.decode(line.encode()) for line in path.read_text().splitlines())
    assert found.divergence is None, found


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
