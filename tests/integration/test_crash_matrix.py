"""kill -9 before and after every append and every effect of a run with two tools.

All cases run beside each other before the first test; each test looks at the outcome of its own.
"""

from collections.abc import Iterable

import pytest
import pytest_asyncio

from tests.integration.beside import Outcomes, wanted
from tests.integration.crash import Case, Outcome, run
from tests.integration.stack import Stacks, seen

SIDES = ("before", "after")
POINTS = (
    *(f"append:{n}:{side}" for n in range(1, 7) for side in SIDES),
    *(f"model:{n}:{side}" for n in range(1, 4) for side in SIDES),
    *(f"tool:{n}:{side}" for n in range(1, 3) for side in SIDES),
    *(f"claim:1:{side}" for side in SIDES),
    *(f"hot:1:{side}" for side in SIDES),
    "spec:3:after",
    "spec:6:after",
    "sent:get_weather",
    "done:get_weather",
    "sent:create_reminder",
    "done:create_reminder",
)
UNSENT = {"append:4:after", "spec:6:after", "tool:2:before"}
"""The intent of the `once` call is durable, and it was not sent."""
DOUBT = {*UNSENT, "sent:create_reminder", "done:create_reminder", "tool:2:after", "append:5:before"}
"""Between the durable intent of the `once` call and its journalled result."""

CASES = (
    *(Case(point) for point in POINTS),
    *(Case(p, says="did_not_happen") for p in ("append:4:after", "tool:2:before")),
    *(
        Case(p, by="resume")
        for p in (
            "append:1:after",
            "append:2:after",
            "model:2:after",
            "tool:1:after",
            "tool:2:after",
        )
    ),
)

_STEP = ["phase.entered", "model.requested", "model.answered", "phase.entered"]
_CALL = ["tool.intended", "tool.finished", "phase.entered", "step.finished", "phase.entered"]
GOLDEN = [
    "session.created",
    "turn.started",
    "phase.entered",
    *(*_STEP, *_CALL),
    *(*_STEP, *_CALL),
    *_STEP,
    "step.finished",
    "phase.entered",
    "turn.ended",
]
_OF_CRASHES = {
    "session.claimed",
    "session.interrupted",
    "timer.fired",
    "verification.requested",
    "verification.decided",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(request: pytest.FixtureRequest, stacks: Stacks) -> Outcomes[Case, Outcome]:
    """The outcomes of those cases that are tested in this run."""
    made = Outcomes[Case, Outcome]()
    cases = [case for case in wanted(request, "case") if isinstance(case, Case)]
    await made.run(cases, lambda case: run(stacks, case))
    return made


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case("C051", "C064")
@pytest.mark.req("API-4", "STATE-1", "STATE-4", "TOOL-10", "API-3")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_at(case: Case, outcomes: Outcomes[Case, Outcome]) -> None:
    outcome = outcomes.of(case)
    assert outcome.session["status"] == "completed"
    _check_doubt(case, outcome)
    _check_model(case, outcome)
    _check_tools(case, outcome)
    _check_trace(outcome)
    _check_stream(outcome)


def _again(case: Case) -> int:
    return int(case.point in DOUBT and case.says == "did_not_happen")


def _check_doubt(case: Case, outcome: Outcome) -> None:
    """A person is asked just where the ledger cannot know."""
    if case.point not in DOUBT:
        assert outcome.pending is None
        return
    assert outcome.pending is not None
    assert outcome.pending["kind"] == "verification"
    (call,) = outcome.pending["calls"]
    assert call["name"] == "create_reminder"
    assert outcome.after.count("verification.decided", call_id=call["call_id"]) == 1


def _check_model(case: Case, outcome: Outcome) -> None:
    """Answers that are in the journal are not bought again; the one in flight is."""
    before, after = outcome.before, outcome.after
    answers = 3 + _again(case)
    assert after.count("model.answered") == answers
    assert after.asked - before.asked == answers - before.count("model.answered")
    assert outcome.session["usage"]["model_calls"] >= answers
    assert outcome.said == {1}


def _check_tools(case: Case, outcome: Outcome) -> None:
    """The reminder is made once; a read that was cut is made again under its key."""
    before, after = outcome.before, outcome.after
    sent = case.point not in UNSENT or _again(case)
    assert after.deliveries["create_reminder"] == sent
    assert outcome.effects == (sent and case.point != "sent:create_reminder")
    assert len(outcome.keys["get_weather"]) == 1
    finished = before.count("tool.finished", name="get_weather")
    read_again = after.deliveries["get_weather"] - before.deliveries["get_weather"]
    assert read_again == 1 - finished


def _check_trace(outcome: Outcome) -> None:
    """The trace reads as that of a run without a crash, but for the marks of the crash."""
    events = outcome.after.events
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[: len(outcome.before.events)] == outcome.before.events
    if not _again(outcome.case):
        assert _plain(events) == GOLDEN
    ids = [e["data"]["call_id"] for e in events if e["type"] == "tool.intended"]
    assert len(set(ids)) == len(ids) == 2 + _again(outcome.case)
    assert sorted(ids) == sorted(
        e["data"]["call_id"] for e in events if e["type"] == "tool.finished"
    )
    assert seen(events).count("turn.ended") == 1


def _plain(events: Iterable[dict[str, object]]) -> list[str]:
    return [
        str(e["type"])
        for e in events
        if e["type"] not in _OF_CRASHES and "WAITING" not in str(e["data"])
    ]


def _check_stream(outcome: Outcome) -> None:
    """The reader that came back with its last id has every event once."""
    frames = [(f.seq, f.data) for f in outcome.reader.durable]
    assert frames == [(e["seq"], e) for e in outcome.after.events]
