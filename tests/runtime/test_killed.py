"""A worker is killed at its n-th call of a port, for every n, before or after the call's effect.

A second worker takes over when the lease is over. Whatever the moment: the session ends, no effect
of a `once` tool is repeated, no answer in the journal is bought again, readers see each event once.
"""

import asyncio
import functools
from dataclasses import dataclass, field

import pytest

from app.core.events import ModelAnswered, ModelRequested
from app.core.lifecycle import Status
from app.runtime.streams.frames import Frame
from tests.fakes.interposed import Death, Killed
from tests.fakes.loop import VirtualLoop
from tests.runtime.scripts import weather
from tests.runtime.world import LEASE_S, TENANT, World, seqs

TASK = "Weather, and remind me."
POLLS = {"renew", "sweep", "owned", "claim"}
"""Calls which come by time; in a whole run they fall between the session's own."""


@dataclass
class Story:
    """What came of one session whose first worker died."""

    world: World
    session: str = ""
    bought: set[str] = field(default_factory=set)
    asked_again: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    halves: list[Frame] = field(default_factory=list)
    verified: bool = False
    over_s: float = 0.0


async def live_through(death: Death, world: World | None = None) -> Story:
    """Run the session with a worker that dies, then with one that lives."""
    story = Story(world or World())
    world = story.world
    world.model.script, world.model.takes_s = weather, 1.3
    async with world.api() as group:
        story.session = await world.create(TASK)
        whole = group.create_task(world.frames(story.session))
        halves = group.create_task(_in_halves(world, story.session))
        await _doomed(world, story.session, death)
        died_s = world.clock.boot_s()
        story.bought = _answered(world, story.session)
        before = len(world.model.asked)
        heir = world.node("heir")
        running = group.create_task(heir.worker.run())
        await _ended(story)
        story.over_s = world.clock.boot_s() - died_s
        story.frames, story.halves = await whole, await halves
        story.asked_again = [h for h in world.model.asked[before:] if h in story.bought]
        heir.worker.drain()
        await running
    return story


async def _doomed(world: World, session: str, death: Death) -> None:
    """Run a worker until it dies, or until the session is over."""
    node = world.node("doomed", between=death)
    loop = asyncio.get_running_loop()  # no group: its death must not end the test
    working = loop.create_task(node.worker.run())
    ending = loop.create_task(world.until(session, "completed"))
    await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
    assert death.dead or ending.done()
    for task in (working, ending):
        task.cancel()
    await asyncio.wait([working, ending])
    if not working.cancelled():
        error = working.exception()
        assert error is not None
        assert BaseExceptionGroup("", [error]).split(Killed)[1] is None, error


async def _ended(story: Story) -> None:
    """Wait for the end; where a person must say what happened, say the truth."""
    world = story.world
    await world.until(story.session, "completed", "waiting")
    shown = await world.shown(story.session)
    if shown["status"] == Status.WAITING:
        story.verified = True
        happened = bool(world.tools.done["create_reminder"])
        calls = shown["pending"]["calls"]  # type: ignore[index]
        assert [call["name"] for call in calls] == ["create_reminder"]
        call_id = calls[0]["call_id"]
        await world.answers.verify(TENANT, story.session, call_id, None, None, happened=happened)
        await world.until(story.session, "completed")


async def _in_halves(world: World, session: str) -> list[Frame]:
    """Follow with a connection that breaks after every third event."""
    frames: list[Frame] = []
    while True:
        after = frames[-1].seq or 0 if frames else 0
        follow = world.follower.follow(session, world.cipher(session), after)
        taken = 0
        async for frame in follow:
            if frame.seq is not None:
                frames.append(frame)
                taken += 1
            if taken == 3:
                break
        await follow.aclose()
        if taken < 3:
            return frames


def _answered(world: World, session: str) -> set[str]:
    """Return the requests whose answers are in the journal."""
    bought: set[str] = set()
    asked = ""
    for event in world.journal(session):
        if isinstance(event.body, ModelRequested):
            asked = event.body.sha256
        elif isinstance(event.body, ModelAnswered):
            bought.add(asked)
    return bought


def run(death: Death) -> Story:
    """Live through it on a virtual loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(live_through(death))


@functools.cache
def calls_of_a_whole_run() -> tuple[str, ...]:
    death = Death()
    run(death)
    return tuple(death.names)


def check(story: Story) -> None:
    """Assert what holds whenever the first worker died."""
    world, session = story.world, story.session
    types = world.types(session)  # dense and chained, or this fails
    assert types.count("turn.ended") == 1
    assert types[-1] == "turn.ended"
    assert world.tools.done["create_reminder"] == 1
    assert len(world.tools.keys) == len(set(world.tools.keys)) + _repeated_reads(story)
    assert story.asked_again == []
    everything = list(range(1, len(types) + 1))
    assert seqs(story.frames) == everything
    assert seqs(story.halves) == everything
    row = world.store.rows[session]
    assert (row.owner, row.inbox_head - row.inbox_seen, row.wake_us) == (None, 0, None)
    assert story.over_s < 2 * LEASE_S + 15 + 4


def _repeated_reads(story: Story) -> int:
    return max(0, story.world.tools.delivered["get_weather"] - 1)


@pytest.mark.req("STATE-1", "STATE-4", "STATE-10", "API-3", "TOOL-10")
@pytest.mark.case("C064", "C075", "C051", "C087")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call_of_a_port(after: bool) -> None:  # noqa: FBT001 - a parameter of the test
    waited, names = list[str](), calls_of_a_whole_run()
    assert len(names) > 15
    for n in range(1, len(names) + 1):
        story = run(Death(n, after=after))
        try:
            check(story)
        except BaseException as error:
            error.add_note(f"killed {'after' if after else 'before'} call {n}: {names[n - 1]}")
            raise
        if story.verified:
            waited.append(names[n - 1])
    window = ["append_batch", "publish", "run"] if after else ["publish", "run", "append_batch"]
    assert [name for name in waited if name not in POLLS] == window
