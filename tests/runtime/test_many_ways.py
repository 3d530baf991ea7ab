"""Many seeds: two workers, readers and users who do things at random; ports that fail at random.

Whatever happens, the same holds at the end: the session rests, its journal is dense and folds,
nothing of a `once` call was repeated, every reader saw each event once, and nothing crashed.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from app.core.canonical import Json
from app.core.events import ToolIntended
from app.core.faults import Fault, FaultKind
from app.runtime.errors import ModelFailure, StoreUnavailable, ToolFailure
from app.runtime.exchange import ModelReply, ModelRequest, ToolRequest
from app.runtime.follow import Frame
from app.runtime.refusals import Refused
from tests.fakes.loop import VirtualLoop
from tests.fakes.models import calls, results, says
from tests.fakes.scripted_tools import SPECS
from tests.runtime.world import TENANT, Node, World, seqs

SEEDS = 40
NAMES = [one.name for one in SPECS]
KINDS = [FaultKind.UNAVAILABLE, FaultKind.TIMEOUT, FaultKind.RATE_LIMITED, FaultKind.NOT_FOUND]


class Chance:
    """What happens at random in one run, all of it from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.happened: Counter[str] = Counter()

    def now(self, share: float) -> bool:
        return self.random.random() < share

    def answer(self, request: ModelRequest) -> ModelReply | ModelFailure:
        if self.now(0.1):
            return ModelFailure(Fault.of(self.random.choice(KINDS), "the model is busy"))
        if self.now(0.05):
            return says("")
        if not request.tools or self.now(0.3) or len(results(request.messages)) > 8:
            return says(f"Answer {self.random.random()}")
        return calls(*(self._call() for _ in range(self.random.randrange(1, 5))))

    def _call(self) -> tuple[str, dict[str, object]]:
        name = "nothing_like_it" if self.now(0.05) else self.random.choice(NAMES)
        return name, {"n": self.random.randrange(6)}

    async def work(self, request: ToolRequest) -> Json:
        await asyncio.sleep(self.random.choice([0, 0.01, 0.5, 4]))
        if request.spec.effect == "once":
            self.happened[request.key] += 1
        if self.now(0.2):
            sent = self.now(0.7) or bool(self.happened[request.key])
            raise ToolFailure(Fault.of(self.random.choice(KINDS), "it failed", sent=sent))
        if self.now(0.05):
            raise ZeroDivisionError
        return {"n": self.random.randrange(3)}

    async def between(self, name: str, call: Callable[[], Awaitable[object]]) -> object:
        """Lose a statement now and then, before or after its effect."""
        database = name not in {"answer", "run", "publish", "put", "get"}
        if database and self.now(0.03):
            raise StoreUnavailable("lost before")
        answer = await call()
        if database and self.now(0.03):
            raise StoreUnavailable("lost after")
        return answer


async def _user(world: World, chance: Chance, session: str) -> None:
    """Do something every few seconds; being refused is fine."""
    for _ in range(chance.random.randrange(1, 7)):
        await asyncio.sleep(chance.random.random() * 6)
        try:
            await _ask(world, chance, session)
        except Refused:
            chance.happened["refused"] += 1


async def _ask(world: World, chance: Chance, session: str) -> None:
    match chance.random.randrange(7):
        case 0 | 1 | 2:
            await world.say(session, f"message {chance.random.random()}")
        case 3:
            await world.sessions.cancel(TENANT, session)
        case 4:
            await world.sessions.resume(TENANT, session, {"max_steps": 99}, None)
        case 5 if chance.now(0.3):
            await world.sessions.close(TENANT, session)
        case _:
            pass


async def _verifier(world: World, chance: Chance, session: str) -> None:
    """Say what is true of every call in doubt."""
    while True:
        await world.store.next_append(2)
        if world.store.rows[session].facts.status != "waiting":
            continue
        for call_id in world.state(session).pending.calls:  # type: ignore[union-attr]
            happened = bool(chance.happened[f"{session}:{call_id}"])
            try:
                await world.sessions.verify(TENANT, session, call_id, 1, None, happened=happened)
            except Refused:
                chance.happened["refused"] += 1


async def _rested(world: World, session: str) -> None:
    """Wait until nobody owns the session and nothing wakes it."""
    async with asyncio.timeout(900):
        while (await world.store.heads([session]))[session].idle is False:
            await world.store.next_append(0.5)


async def _stops(world: World, chance: Chance, nodes: list[Node]) -> None:
    """Stop a process for a moment, or drain one and start another, now and then."""
    del world
    while True:
        await asyncio.sleep(chance.random.random() * 20)
        if chance.now(0.5):
            chance.random.choice(nodes).clock.stop(chance.random.random() * 9)


async def live(seed: int) -> tuple[World, list[Node], str, list[list[Frame]], Chance]:
    chance, world = Chance(seed), World()
    world.model.script, world.model.takes_s = chance.answer, chance.random.choice([0.01, 0.3, 3])
    world.model.pieces = chance.random.choice([0, 4])
    world.tools.behaviours = dict.fromkeys(NAMES, chance.work)
    world.hub.loses = lambda _event: chance.now(0.05)
    nodes = [world.node(f"w{n}", between=chance.between) for n in (1, 2)]
    async with world.running(*nodes) as group:
        session = await world.create("task", limits={"total_timeout_s": 40.0})
        aside = [
            group.create_task(_verifier(world, chance, session)),
            group.create_task(_stops(world, chance, nodes)),
        ]
        await _user(world, chance, session)
        await _rested(world, session)
        for task in aside:
            task.cancel()
        frames = [await world.frames(session, after) for after in (0, 5)]
    return world, nodes, session, frames, chance


def check(seed: int) -> Chance:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        world, nodes, session, (whole, rest), chance = runner.run(live(seed))
    journal = world.journal(session)
    state = world.state(session)
    types = [event.body.TYPE for event in journal]
    assert types.count("turn.ended") == types.count("turn.started")
    assert state.calls == ()
    assert seqs(whole) == [event.seq for event in journal]
    assert seqs(rest) == [event.seq for event in journal][5:]
    crashes = [line for node in nodes for line in node.observer.said("session.crashed")]
    assert crashes == []
    once = {e.body.key for e in journal if isinstance(e.body, ToolIntended)}
    repeated = [key for key in once if chance.happened[key] > 1]
    assert repeated == []
    return chance


@pytest.mark.req("STATE-1", "STATE-4", "STATE-10")
@pytest.mark.case("C084", "C135", "C079")
def test_many_seeds() -> None:
    refused = 0
    for seed in range(SEEDS):
        try:
            refused += check(seed).happened["refused"]
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert refused  # some of what users wanted could not be
