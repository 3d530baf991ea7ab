"""A part of the crash matrix that fits into every test run; `make chaos` runs all of it.

The part changes the action from point to point, so that each port sees each of them.
"""

import pytest

from tests.chaos.cases import ACTIONS, Case
from tests.chaos.matrix import every_case, run
from tests.chaos.table import failed
from tests.integration.stack import Stacks

LANES = 6
PART = 13
"""One case in so many; it has no divisor in common with the actions."""


def _part(every: list[Case]) -> list[Case]:
    """Return a part that holds each port at least once."""
    part = every[::PART]
    ports = {case.port for case in part}
    firsts = {case.port: case for case in reversed(every) if case.port not in ports}
    return [*part, *firsts.values()]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("STATE-1", "STATE-4", "TOOL-10", "API-3", "API-11")
async def test_a_part_of_the_matrix(stacks: Stacks) -> None:
    every = await every_case(stacks)
    part = _part(every)
    assert {case.port for case in part} == {case.port for case in every}
    assert {case.action for case in part} == set(ACTIONS)
    outcome = await run(stacks, part, lanes=LANES, told=lambda _: None)
    assert outcome.faults == []
    assert {str(f.case): f.faults or "not reached" for f in outcome.found if failed(f)} == {}
    assert len(outcome.found) == len(part)
