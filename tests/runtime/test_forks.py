"""Forks that are given a result in place of one that the parent has."""

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.replay import replay
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import ToolRequest
from app.runtime.sessions.forks import ForkWanted
from tests.runtime.scripts import shop
from tests.runtime.world import TENANT, World


async def test_a_call_that_is_given_a_result_was_stopped_by_no_guard(world: World) -> None:
    async def stopped(_request: ToolRequest) -> Json:
        raise ToolFailure(Fault.of(FaultKind.PERMISSION, "inside", sent=False), flagged="egress")

    world.model.script, world.tools.behaviours["calculate"] = shop, stopped
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
        flagged = world.types(session).index("security.flagged") + 1
        wanted = ForkWanted(at_seq=flagged, result=("t1_c1_1", "189.2"))
        fork = (await world.forks.fork(TENANT, session, wanted, None)).session_id
        assert fork is not None
        await world.until(fork, "completed")
    assert "security.flagged" not in world.types(fork)
    assert replay(world.journal(fork)).divergence is None
