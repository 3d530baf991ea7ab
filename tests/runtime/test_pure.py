"""Pure functions are computed in the step: the same events, fewer appends (ADR 017)."""

import pytest

from app.core.canonical import Json
from app.runtime.errors import StoreUnavailable
from app.runtime.ports.tools import ToolRequest
from tests.fakes.interposed import Death, Faults
from tests.runtime.scripts import sums, weather
from tests.runtime.world import World, dies

CALCULATE = frozenset({"calculate"})


async def run(world: World) -> str:
    """Play a session to its end."""
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
    return session


@pytest.mark.req("LOOP-1", "STATE-1")
async def test_calls_of_pure_functions_cost_no_append() -> None:
    plain, computed = World(), World()
    computed.pure = CALCULATE
    plain.model.script = computed.model.script = sums
    told = [world.types(await run(world)) for world in (plain, computed)]
    assert told[0] == told[1]
    # the first request, five answers; the others besides one for each of the four results
    assert (len(plain.store.batches), len(computed.store.batches)) == (1 + 5 + 4, 1 + 5)


async def test_what_can_be_noticed_outside_is_written_first(world: World) -> None:
    """The reading and the reminder are no pure functions, whatever else is."""
    world.pure = CALCULATE
    world.model.script = weather
    seen: list[list[str]] = []

    async def look(request: ToolRequest) -> Json:
        seen.append(world.types(session))
        return {"told": request.spec.name}

    world.tools.behaviours = {"get_weather": look, "create_reminder": look}
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
    assert [types[-1] for types in seen] == ["tool.intended", "tool.intended"]


@pytest.mark.req("STATE-3")
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_around_the_append_leaves_each_call_one_result(
    world: World, *, after: bool
) -> None:
    world.pure = CALCULATE
    world.model.script = sums
    session = await world.create()
    death = Death(on="append_batch", when=lambda: len(world.store.batches) == 2, after=after)
    await dies(world.node("w1", between=death))
    assert world.types(session).count("tool.finished") == 1
    async with world.running(world.node("w2")):
        await world.until(session, "completed")
    assert world.types(session).count("tool.finished") == 4


async def test_without_its_definition_a_call_is_performed_like_every_other(world: World) -> None:
    """Its intent is of a process that did not compute it; the heir cannot read the tool yet."""
    world.model.script = sums
    session = await world.create()
    written = Death(
        on="append_batch", when=lambda: "tool.intended" in world.types(session), after=True
    )
    await dies(world.node("w1", between=written))
    assert world.types(session).count("tool.finished") == 0
    world.pure = CALCULATE
    faults = Faults()
    faults.before["version"] = [StoreUnavailable("away"), StoreUnavailable("away")]
    async with world.running(world.node("w2", between=faults)):
        await world.until(session, "completed")
    assert faults.before["version"] == []
    assert world.types(session).count("tool.finished") == 4
    assert world.types(session).count("tool.intended") == 4
