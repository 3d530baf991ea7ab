"""Half a minute of the soak; `make soak` takes twenty."""

import pytest

from tests.integration.stack import Stacks
from tests.soak.report import report, violations
from tests.soak.run import soak

MINUTES = 0.25
USERS = 4


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("STATE-1", "STATE-4", "API-3", "TOOL-10")
async def test_a_short_soak(stacks: Stacks) -> None:
    made = await soak(stacks, minutes=MINUTES, users=USERS, every_s=(1.0, 2.5))
    assert violations(made) == []
    assert made.tally.ended.total() == made.tally.started.total() > 0
    assert made.tally.expected == made.tally.seen
    assert made.fleet.done.total() > 0
    assert (made.tally.lost, made.tally.repeated) == (0, 0)
    assert "Violations: none." in report(made)
