"""Whole turns: from creation through a worker to a follower."""

from dataclasses import replace

import pytest

from app.core.events import TurnEnded
from tests.fakes.models import says
from tests.runtime.scripts import shop, weather
from tests.runtime.world import World, data, seqs

SHOP = [
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


@pytest.mark.req("API-1", "LOOP-1", "STATE-1")
async def test_a_shop_price_takes_one_tool_and_two_answers(world: World) -> None:
    world.model.script = shop
    async with world.running():
        session = await world.create("What do I pay?")
        frames = await world.frames(session)
    assert world.types(session) == SHOP
    assert seqs(frames) == list(range(1, len(SHOP) + 1))
    assert len(world.model.asked) == 2
    shown = await world.shown(session)
    assert shown["status"] == "completed"
    assert shown["stop_reason"] == "final_answer"
    usage = shown["usage"]
    assert isinstance(usage, dict)
    assert (usage["model_calls"], usage["tool_calls"], usage["input_tokens"]) == (2, 1, 200)
    assert shown["result"]["text"].startswith("You pay")  # type: ignore[index]


@pytest.mark.req("TOOL-10")
async def test_weather_and_a_reminder_take_three_answers_and_one_effect(world: World) -> None:
    world.model.script = weather
    node = world.node()
    async with world.running(node):
        session = await world.create("Weather, and remind me.")
        frames = await world.frames(session)
    assert len(world.model.asked) == 3
    assert world.tools.done == {"get_weather": 1, "create_reminder": 1}
    assert world.tools.keys == [f"{session}:t1_c1_1", f"{session}:t1_c2_1"]
    journal = world.journal(session)
    assert isinstance(journal[-1].body, TurnEnded)
    assert seqs(frames) == [event.seq for event in journal]
    told = node.observer.events[session]
    assert [event.seq for event in told] == list(range(3, len(journal) + 1))
    assert node.observer.lines == []


@pytest.mark.case("C041")
async def test_a_field_that_an_endpoint_refused_is_told_in_the_journal(world: World) -> None:
    world.model.script = lambda _: replace(says("ok"), dropped=("stream_options",))
    async with world.running():
        session = await world.create()
        frames = await world.frames(session)
    answered = [data(frame)["data"] for frame in frames if frame.type == "model.answered"]
    assert [answer["dropped"] for answer in answered] == [["stream_options"]]  # type: ignore[index]


async def test_a_turn_is_written_in_few_appends(world: World) -> None:
    """One to begin with, and one for the answer of each effect."""
    world.model.script = weather
    async with world.running():
        session = await world.create("Weather, and remind me.")
        await world.frames(session)
    assert len(world.store.batches) == 1 + 3 + 2
    assert world.store.rows[session].owner is None
    assert world.store.rows[session].claims == 0


@pytest.mark.req("API-7")
async def test_a_second_message_is_a_second_turn(world: World) -> None:
    async with world.running():
        session = await world.create("one")
        await world.frames(session)
        answer = await world.tell(session, "two")
        assert b'"started"' in answer.body
        await world.frames(session)
    shown = await world.shown(session)
    assert (shown["turn"], shown["result"]["text"]) == (2, "You said: two")  # type: ignore[index]
    assert world.types(session).count("turn.ended") == 2
