"""A part of the crash matrix that fits into every test run; `make chaos` runs all of it.

The part changes the action from port to port, and gives some points all of them.
"""

import itertools

import pytest

from tests.chaos.cases import ACTIONS, Case
from tests.chaos.matrix import every_case, run
from tests.chaos.table import failed
from tests.integration.stack import Stacks

LANES = 8
TWICE_EVERY = 12
THOROUGH = {"append", "tool", "sent", "commit"}
"""Ports of which a point gets every action."""


def _part(every: list[Case]) -> list[Case]:
    """Return a part that holds each port, and each action at some of them."""
    part: list[Case] = [case for case in every if case.second is not None][::TWICE_EVERY]
    every = [case for case in every if case.second is None]
    ports = dict.fromkeys(case.port for case in every)
    for port, action in zip(ports, itertools.cycle(ACTIONS), strict=False):
        points = list(dict.fromkeys(case.point for case in every if case.port == port))
        chosen = points[len(points) // 3]
        actions = ACTIONS if port in THOROUGH else (action,)
        part.extend(Case(chosen, action) for action in actions)
    return part


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
    assert {str(f.case): f.faults for f in outcome.found if failed(f)} == {}
    assert [str(f.case) for f in outcome.found if not f.struck] == []
    assert len(outcome.found) == len(part)
