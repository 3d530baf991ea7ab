"""Journals of every release: today's code folds them to what they meant, and loses nothing.

A journal stays here for ever. When an event's shape changes, its old journals show whether the
upcasters lift them. A release that writes a new version of any event (`JOURNAL_V`) adds a folder
`v<JOURNAL_V>` with journals as `GET /v1/sessions/{id}/events` gives them, an event a line, which
hold every event that is new in it; and says below what they mean. `lived_*` are random lives
(tests/core/walks.py) that have much in them.
"""

import json
from pathlib import Path

import pytest

from app.core.effects import CheckStatus
from app.core.events import ModelAnswered, SecurityFlagged, ToolIntended
from app.core.evolve import fold
from app.core.lifecycle import PendingKind, Status
from app.core.messages import ToolMessage, UserMessage
from app.core.plan import Rest, owed, resting
from app.core.replay import replay
from app.core.state import Pending, State
from app.storage.codec import JsonCodec
from tests.replay.folds import HERE, JOURNALS, events, folds, kept


def folded(path: Path, until: int | None = None) -> State:
    state = fold(events(path)[:until])
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


@pytest.mark.req("LOOP-1")
@pytest.mark.parametrize("path", JOURNALS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_each_event_does_to_a_session_what_it_did(path: Path) -> None:
    """And the session asks for the same effects after it. Fields that are new since may differ."""
    were = [json.loads(line) for line in kept(path).read_text().splitlines()]
    for n, (was, line) in enumerate(zip(were, folds(path), strict=True), 1):
        found = {name: value for name, value in json.loads(line).items() if name in were[0]}
        assert found == was, f"event {n}"


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


@pytest.mark.req("API-7")
def test_a_message_that_an_older_release_enqueued_was_enqueued() -> None:
    """It was sent by a process of the next release, to steer the turn that the older one ran."""
    state = folded(HERE / "v1" / "steered_while_upgrading.jsonl")
    said = [message.text for message in state.history if isinstance(message, UserMessage)]
    assert said == ["look", "and now"]
    assert (state.turn, state.queue) == (2, ())


@pytest.mark.parametrize("path", JOURNALS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_an_answer_of_before_there_were_approvals_is_lifted(path: Path) -> None:
    """In version 1 of `model.answered` no call needed approval, was the caller's or checkable."""
    written = [json.loads(line) for line in path.read_text().splitlines()]
    old = [e["seq"] for e in written if (e["type"], e["v"]) == ("model.answered", 1)]
    assert bool(old) == (path.parent.name == "v1")
    for event in events(path):
        if isinstance(event.body, ModelAnswered):
            assert event.body.V == 2
            for call in event.body.tool_calls if event.seq in old else ():
                assert (call.needs_approval, call.client, call.checkable) == (False, False, False)


@pytest.mark.req("TOOL-17")
def test_approvals_mean_what_they_meant() -> None:
    path = HERE / "v2" / "approvals.jsonl"
    waiting = folded(path, 15)
    four = tuple(f"t1_c1_{n}" for n in (2, 3, 4, 5))
    assert waiting.pending == Pending(PendingKind.APPROVAL, four)
    assert resting(waiting) == Rest(1_796_140_861_520_000)
    assert owed(folded(path, 18)) == ()
    made = [e.body.arguments for e in events(path) if isinstance(e.body, ToolIntended)]
    assert made == [{"q": "rate"}, {"amount": 5}, {"amount": 6}]
    results = [m for m in folded(path).history if isinstance(m, ToolMessage)]
    assert results[2].content == '{"receipt":2}\n\n[A person changed the arguments.]'
    assert "They say: not this one" in results[3].content
    assert "Nobody approved" in results[4].content


@pytest.mark.req("TOOL-10")
def test_calls_of_the_caller_and_look_ups_mean_what_they_meant() -> None:
    path = HERE / "v2" / "client_tools.jsonl"
    assert folded(path, 13).pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_1", "t1_c1_2"))
    assert folded(path, 15).pending == Pending(PendingKind.CLIENT_TOOLS, ("t1_c1_2",))
    path = HERE / "v2" / "status_checks.jsonl"
    for seq, attempt in ((10, 1), (11, 2), (12, 3), (26, 1), (27, 2), (28, 3)):
        (effect,) = owed(folded(path, seq))
        assert (type(effect), getattr(effect, "attempt", 0)) == (CheckStatus, attempt)
    assert folded(path, 31).pending == Pending(PendingKind.VERIFICATION, ("t1_c2_1",))
    assert folded(path, 57).pending == Pending(PendingKind.APPROVAL, ("t1_c4_1",))
    done = [(a.digest, a.outcome) for a in folded(path).once_done]
    assert [outcome for _, outcome in done] == ["ok", "unknown", "ok"]
    assert done[1][0] == done[2][0]


@pytest.mark.req("API-7", "STATE-7")
def test_steers_interrupts_and_forks_mean_what_they_meant() -> None:
    path = HERE / "v2" / "steered_and_interrupted.jsonl"
    said = [m.text for m in folded(path).history if isinstance(m, UserMessage)]
    assert said == [
        "what does it cost?",
        "in euros, please",
        "with VAT",
        "stop, only tell me the colour",
        "and then the size",
    ]
    path = HERE / "v2" / "fork_of_a_fork.jsonl"
    first, second, third = folded(path, 22), folded(path, 49), folded(path, 62)
    assert (first.forked_turn, second.forked_turn, third.forked_turn) == (1, 2, 2)
    assert first.queue == ()
    assert folded(path).once_done[-1].content == '{"receipt":"as if"}'


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


@pytest.mark.req("SAFE-6")
def test_a_call_that_the_egress_guard_stopped_is_an_error_and_the_turn_goes_on() -> None:
    path = HERE / "v2" / "stopped_by_the_egress_guard.jsonl"
    (flag,) = [e.body for e in events(path) if isinstance(e.body, SecurityFlagged)]
    assert (flag.guard, flag.call_id, flag.name) == ("egress", "t1_c1_1", "lookup")
    state = folded(path)
    assert state.ended is not None
    assert state.ended.status is Status.COMPLETED
