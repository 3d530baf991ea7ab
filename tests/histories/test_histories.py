"""Random histories, the same ones in every run; `make histories EXAMPLES=200` plays others."""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test

from tests.histories.machine import Histories
from tests.histories.world import Talk, World, world
from tests.waiting import until

EXAMPLES = int(os.environ.get("EXAMPLES", "0"))
FEW, STEPS = 6, 14


@pytest.fixture
def standing() -> Iterator[tuple[World, asyncio.AbstractEventLoop]]:
    """The world, on a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="histories")
    thread.start()
    opened = world()

    async def end() -> None:
        await opened.__aexit__(None, None, None)

    try:
        made = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(120)
        try:
            yield made, loop
        finally:
            asyncio.run_coroutine_threadsafe(end(), loop).result(120)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_the_watch_sees_a_session_without_an_owner() -> None:
    async with world() as made:
        made.watch.slack_s = 0
        said = "s0 hold 0"
        made.hold_for(said)
        answer = await made.post(0, "/v1/sessions", {"task": said})
        await made.quiet(Talk(str(answer.json()["id"]), [said]))
        assert made.watch.faults == []
        for worker in made.workers:
            worker.kill()
        await until(lambda: bool(made.watch.faults), timeout_s=30)
        assert "has had no owner" in made.watch.faults[0]


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES else 600)
@pytest.mark.req("API-4", "API-7", "API-8", "STATE-1", "STATE-4", "STATE-7", "TOOL-10", "TOOL-17")
def test_random_histories(standing: tuple[World, asyncio.AbstractEventLoop]) -> None:
    """No shrinking: a step takes a second, and the steps that failed are printed."""
    Histories.world, Histories.loop = standing
    Histories.failures.clear()
    try:
        run_state_machine_as_test(Histories, settings=_settings())
    except HypothesisException:  # it cannot play a history again that broke the world
        if Histories.failures:
            raise Histories.failures[0] from None
        raise


def _settings() -> settings:
    return settings(
        max_examples=EXAMPLES or FEW,
        stateful_step_count=STEPS,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
