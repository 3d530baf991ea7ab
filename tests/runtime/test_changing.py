"""The quick copy of a state is the copy that the standard library makes."""

from dataclasses import fields, replace

import pytest

from app.core.changing import changed
from app.core.lifecycle import Phase
from app.core.state import State
from tests.runtime.scripts import shop
from tests.runtime.world import World


async def test_a_changed_state_is_what_replace_makes(world: World) -> None:
    world.model.script = shop
    async with world.running():
        session = await world.create()
        await world.until(session, "completed")
    state = world.state(session)
    before = {field.name: getattr(state, field.name) for field in fields(State)}
    assert changed(state) == state
    assert changed(state, seq=99, phase=Phase.ACT) == replace(state, seq=99, phase=Phase.ACT)
    assert {field.name: getattr(state, field.name) for field in fields(State)} == before
    with pytest.raises((AttributeError, TypeError)):
        changed(state, nothing=1)  # type: ignore[call-arg]
