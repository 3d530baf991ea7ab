"""A worker that stands still past its lease, and goes on after another has taken over.

It may write nothing more and start no tool call, wherever it was stopped: also between the durable
intent and the sending, and with an answer in its hands.
"""

import pytest
import pytest_asyncio

from tests.integration.beside import Outcomes, wanted
from tests.integration.frozen import Outcome, run
from tests.integration.stack import Stacks, seen

DELIVERED = {
    "append:2:before": 1,
    "append:2:after": 1,
    "model:2:before": 1,
    "model:2:after": 1,
    "tool:1:before": 1,
    "append:4:before": 1,
    "append:4:after": 0,
    "spec:6:after": 0,
    "tool:2:before": 0,
    "tool:2:after": 1,
    "append:5:before": 1,
    "append:6:before": 1,
}
"""Where the worker is stopped, and how often the reminder is delivered in all."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(request: pytest.FixtureRequest, stacks: Stacks) -> Outcomes[str, Outcome]:
    """The outcomes of those points that are tested in this run."""
    made = Outcomes[str, Outcome]()
    await made.run(map(str, wanted(request, "point")), lambda point: run(stacks, point))
    return made


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case("C069")
@pytest.mark.req("STATE-4", "TOOL-10")
@pytest.mark.parametrize("point", DELIVERED)
def test_stopped_past_its_lease(point: str, outcomes: Outcomes[str, Outcome]) -> None:
    found = outcomes.of(point)
    doubt = point in {"append:4:after", "spec:6:after", "tool:2:before", "tool:2:after"}
    doubt = doubt or point == "append:5:before"
    assert found.session["status"] == ("waiting" if doubt else "completed")
    assert found.verified["status"] == "completed"
    assert found.after == found.before
    assert found.sent_after == found.sent_before
    assert found.sent_after.count("create_reminder") == DELIVERED[point]
    frames = [frame.data for frame in found.reader.durable]
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
    assert frames[: len(found.after)] == found.after
    assert seen(frames).count("turn.ended") == 1
    assert next(f["data"]["epoch"] for f in frames if f["type"] == "session.claimed") in {1, 2}
