"""Many seeds: two workers, readers and users who do things at random; ports that fail at random.

Whatever happens, the same holds at the end: the session rests, its journal is dense and folds,
nothing of a `once` call was repeated, every reader saw each event once, and nothing crashed.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from app.core.canonical import Json
from app.core.events import Choice, ToolIntended
from app.core.faults import Fault, FaultKind
from app.runtime.errors import ModelFailure, StoreUnavailable, ToolFailure
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.tools import ToolRequest
from app.runtime.refusals import Refused
from app.runtime.sessions.approvals import Decided
from app.runtime.streams.frames import Frame
from tests.fakes.interposed import Between
from tests.fakes.loop import VirtualLoop
from tests.fakes.models import calls, results, says
from tests.fakes.scripted_tools import SPECS
from tests.fakes.small import KeepingObserver
from tests.runtime.world import TENANT, Node, World, seqs

SEEDS = 40
NAMES = [one.name for one in SPECS]
ONCE = ["create_reminder"] * 4
KINDS = [FaultKind.UNAVAILABLE, FaultKind.TIMEOUT, FaultKind.RATE_LIMITED, FaultKind.NOT_FOUND]


class Chance:
    """What happens at random in one run, all of it from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self.deaths: dict[str, asyncio.Event] = {}

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
        name = "nothing_like_it" if self.now(0.05) else self.random.choice([*NAMES, *ONCE])
        return name, {"n": self.random.randrange(6)}

    async def work(self, request: ToolRequest) -> Json:
        await asyncio.sleep(self.random.choice([0, 0.01, 0.5, 4, 9]))
        if request.spec.effect == "once":
            self.happened[request.key] += 1
        if self.now(0.2):
            sent = self.now(0.7) or bool(self.happened[request.key])
            raise ToolFailure(Fault.of(self.random.choice(KINDS), "it failed", sent=sent))
        if self.now(0.05):
            raise ZeroDivisionError
        return {"n": self.random.randrange(3)}

    def between(self, dead: asyncio.Event) -> Between:
        """Lose a statement now and then, before or after its effect; all of them once dead."""

        async def call_it(name: str, call: Callable[[], Awaitable[object]]) -> object:
            lossy = name not in {"answer", "run", "publish", "put", "get"}
            if dead.is_set() or (lossy and self.now(0.03)):
                raise StoreUnavailable("lost before")
            answer = await call()
            if dead.is_set() or (lossy and self.now(0.03)):
                raise StoreUnavailable("lost after")
            return answer

        return call_it


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
                await world.answers.verify(TENANT, session, call_id, 1, None, happened=happened)
                chance.happened["verified"] += 1
            except Refused:
                chance.happened["refused"] += 1
        await _decide(world, chance)


async def _decide(world: World, chance: Chance) -> None:
    """Deny what may have happened already and is asked for again."""
    for approval in (await world.approvals.pending(TENANT, after=None, limit=10))[0]:
        decided = Decided(choice=Choice.DENY)
        try:
            await world.approvals.decide(TENANT, approval.id, decided, None)
            chance.happened["denied"] += 1
        except Refused:
            chance.happened["refused"] += 1


async def _rested(world: World, session: str) -> None:
    """Wait until nobody owns the session and nothing wakes it."""
    async with asyncio.timeout(900):
        while (await world.store.heads([session]))[session].idle is False:
            await world.store.next_append(0.5)


async def _troubles(world: World, chance: Chance, nodes: list[Node]) -> None:
    """Stop processes for a moment, or kill one and start another; then leave them in peace."""
    loop = asyncio.get_running_loop()  # no group: a death must not end the test
    for n in range(chance.random.randrange(4)):
        await asyncio.sleep(chance.random.random() * 6)
        if chance.now(0.4):
            chance.random.choice(nodes).clock.stop(chance.random.random() * 9)
            continue
        dying = chance.random.choice(nodes)
        chance.deaths[dying.desk.worker].set()
        assert dying.task is not None
        dying.task.cancel()
        await asyncio.wait([dying.task])
        nodes.remove(dying)
        nodes.append(_node(world, chance, f"heir{n}"))
        nodes[-1].task = loop.create_task(nodes[-1].worker.run())
        chance.happened["killed"] += 1


def _node(world: World, chance: Chance, name: str) -> Node:
    dead = chance.deaths[name] = asyncio.Event()
    return world.node(name, between=chance.between(dead))


@dataclass
class Story:
    """What came of one seed."""

    world: World
    chance: Chance
    observers: list[KeepingObserver]
    session: str
    whole: list[Frame]
    rest: list[Frame]


async def live(seed: int) -> Story:
    chance, world = Chance(seed), World()
    world.model.script, world.model.takes_s = chance.answer, chance.random.choice([0.01, 0.3, 3])
    world.model.pieces = chance.random.choice([0, 4])
    world.tools.behaviours = dict.fromkeys(NAMES, chance.work)
    world.hub.loses = lambda _event: chance.now(0.05)
    nodes = [_node(world, chance, f"w{n}") for n in (1, 2)]
    async with world.api() as group:
        for node in nodes:
            node.task = group.create_task(node.worker.run())
        session = await world.create("task", limits={"total_timeout_s": 40.0})
        verifier = group.create_task(_verifier(world, chance, session))
        troubles = group.create_task(_troubles(world, chance, nodes))
        await _user(world, chance, session)
        await troubles
        await _rested(world, session)
        verifier.cancel()
        whole, rest = [await world.frames(session, after) for after in (0, 5)]
        for node in nodes:
            node.worker.drain()
        await asyncio.wait([node.task for node in nodes if node.task is not None])
    observers = [node.observer for node in nodes]
    return Story(world, chance, observers, session, whole, rest)


def check(seed: int) -> Chance:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        story = runner.run(live(seed))
    world, chance, session = story.world, story.chance, story.session
    journal = world.journal(session)
    types = [event.body.TYPE for event in journal]
    assert types.count("turn.ended") == types.count("turn.started")
    assert world.state(session).calls == ()
    assert seqs(story.whole) == [event.seq for event in journal]
    assert seqs(story.rest) == [event.seq for event in journal][5:]
    crashes = [line for observer in story.observers for line in observer.said("session.crashed")]
    assert crashes == []
    once = {e.body.key for e in journal if isinstance(e.body, ToolIntended)}
    repeated = [key for key in once if chance.happened[key] > 1]
    assert repeated == []
    return chance


@pytest.mark.req("STATE-1", "STATE-4", "STATE-10")
@pytest.mark.case("C084", "C135", "C079")
def test_many_seeds() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            chance = check(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        happened.update({what: chance.happened[what] for what in ("refused", "killed", "verified")})
    assert all(happened.values()), happened
