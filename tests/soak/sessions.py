"""The sessions of a soak: kinds, and how each is judged once it is closed."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from tests.chaos import verdict
from tests.chaos.effects import Effects
from tests.chaos.reading import Hangup, Listener, Pause
from tests.chaos.script import effects_of
from tests.chaos.user import LOOKS_S, User, whole_session

Play = Callable[[User], Awaitable[None]]


async def _short(user: User) -> None:
    await user.create("last")
    await user.rest(1, "completed")
    await user.close_session()


async def _middle(user: User) -> None:
    await user.create("work")
    await user.rest(1, "completed")
    await user.say("people")
    await user.rest(2, "completed")
    await user.close_session()


async def _cancelled(user: User) -> None:
    await user.create("slow")
    while not user.effects.deliveries[f"{user.name}-slow1"]:  # noqa: ASYNC110 - another process
        await asyncio.sleep(LOOKS_S)
    await user.cancel()
    await user.rest(1, "cancelled")
    await user.close_session()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of session: what its user does, and the words whose effects must have been."""

    play: Play
    words: tuple[str, ...]
    weight: int


KINDS: Final[dict[str, Kind]] = {
    "short": Kind(_short, ("last",), 4),
    "middle": Kind(_middle, ("work", "people"), 3),
    "cancelled": Kind(_cancelled, ("slow",), 1),
    "long": Kind(whole_session, ("work", "steps", "people", "slow", "last"), 2),
}
READERS: Final = ("steady", "slow", "leaving")
MOST_PAUSE_S: Final = 0.04
LEAVES: Final = 0.08
"""How likely a reader that leaves does so after a frame."""


def pause_of(reader: str, chance: random.Random) -> Pause | None:
    """Return what a reader of this kind does after each frame."""

    async def slow() -> None:
        await asyncio.sleep(chance.random() * MOST_PAUSE_S)

    async def leaving() -> None:
        if chance.random() < LEAVES:
            raise Hangup

    return {"slow": slow, "leaving": leaving}.get(reader)


@dataclass(slots=True)
class Tally:
    """What is counted over the whole soak."""

    started: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    readers: Counter[str] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    expected: int = 0
    seen: int = 0
    again: int = 0
    asked_back: int = 0
    events: int = 0
    lost: int = 0
    repeated: int = 0
    connections: int = 0


def judge(
    tally: Tally,
    user: User,
    kind: Kind,
    listener: Listener,
    journal: verdict.Journal,
) -> None:
    """Count a session that was closed, and note what is wrong with it."""
    effects = user.effects
    wanted = effects_of(user.name, kind.words)
    faults = [
        *verdict.faults_of(journal),
        *verdict.faults_of_effects(effects, wanted, user.name),
        *verdict.faults_of_sayings(journal, user.said, user.name),
        *verdict.faults_of_reading(listener, journal),
    ]
    tally.faults += [f"{user.name} ({user.id}): {fault}" for fault in faults]
    mine = {op for op in effects.deliveries if op.startswith(f"{user.name}-")}
    tally.expected += len(wanted)
    tally.seen += sum(effects.effects[op] for op in mine)
    tally.again += sum(effects.deliveries[op] for op in mine) - len(mine)
    tally.asked_back += user.asked_back
    got = Counter(seq for seq, _ in listener.durable)
    tally.events += len(journal.events)
    tally.lost += sum(event.seq not in got for event in journal.events)
    tally.repeated += sum(n - 1 for n in got.values())
    tally.connections += listener.connections
    forget(effects, mine)


def forget(effects: Effects, ops: set[str]) -> None:
    """Drop what is known of a session's ops, so that a long soak does not grow here."""
    for op in ops:
        effects.happened -= effects.keys.pop(op, set())
        effects.deliveries.pop(op)
        effects.effects.pop(op, None)
