"""A worker that stands still past its lease, and goes on after another has taken over.

It may write nothing more and start no tool call, wherever it was stopped: also between the durable
intent and the sending, and with an answer in its hands.
"""

import pytest
import pytest_asyncio

from tests.integration.beside import Outcomes, wanted
from tests.integration.frozen import Case, Outcome, run
from tests.integration.stack import Stacks, seen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


CASES = (*(Case(point) for point in DELIVERED), Case("tool:2:before", "stall"))
"""`stall`: it goes on, renews its lease, and only then comes to the sending."""
LACKING = (
    Case("spec:6:after", without=("lease",)),
    Case("tool:2:before", without=("first byte",)),
    Case("tool:2:before", "stall", ("hold",)),
)
DOUBT = {"append:4:after", "spec:6:after", "tool:2:before", "tool:2:after", "append:5:before"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(request: pytest.FixtureRequest, stacks: Stacks) -> Outcomes[Case, Outcome]:
    """The outcomes of those cases that are tested in this run."""
    made = Outcomes[Case, Outcome]()
    cases = [case for case in wanted(request, "case") if isinstance(case, Case)]
    await made.run(cases, lambda case: run(stacks, case))
    return made


@pytest.mark.case("C069")
@pytest.mark.req("STATE-4", "TOOL-10")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stopped_past_its_lease(case: Case, outcomes: Outcomes[Case, Outcome]) -> None:
    found = outcomes.of(case)
    assert found.session["status"] == ("waiting" if case.point in DOUBT else "completed")
    assert found.verified["status"] == "completed"
    assert found.after == found.before
    assert found.sent_after == found.sent_before
    assert found.sent_after.count("create_reminder") == DELIVERED[case.point]
    frames = [frame.data for frame in found.reader.durable]
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
    assert frames[: len(found.after)] == found.after
    assert seen(frames).count("turn.ended") == 1
    epochs = [f["data"]["epoch"] for f in frames if f["type"] == "session.claimed"]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("case", LACKING, ids=str)
def test_without_its_fence_it_sends(case: Case, outcomes: Outcomes[Case, Outcome]) -> None:
    """What each fence is good for: without it a call goes out after the takeover."""
    found = outcomes.of(case)
    assert found.sent_after != found.sent_before
