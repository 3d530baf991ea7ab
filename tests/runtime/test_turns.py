"""Whole turns: from creation through a worker to a follower."""

from tests.runtime.scripts import shop
from tests.runtime.world import World, seqs

GOLDEN = [
    "session.created",
    "turn.started",
    "session.claimed",
    "phase.entered",
    "phase.entered",
    "model.requested",
    "model.answered",
    "phase.entered",
    "tool.intended",
    "tool.finished",
    "phase.entered",
    "step.finished",
    "phase.entered",
    "phase.entered",
    "model.requested",
    "model.answered",
    "phase.entered",
    "step.finished",
    "phase.entered",
    "turn.ended",
]


async def test_a_shop_price_takes_one_tool_and_two_answers(world: World) -> None:
    world.model.script = shop
    async with world.running():
        session = await world.create("What do I pay?")
        frames = await world.frames(session)
    assert world.types(session) == GOLDEN
    assert seqs(frames) == list(range(1, len(GOLDEN) + 1))
    assert len(world.model.asked) == 2
    shown = await world.shown(session)
    assert shown["status"] == "completed"
