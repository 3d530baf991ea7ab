"""Copies of the folded state: all of them together grow as the journal, and they stay near its end.

With fixed distances the sums here grow with the square of the length, and the tests fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from app.runtime.execution.copies import (
    HOT_LEAST,
    HOT_PER_DOUBLING,
    SNAPSHOT_LEAST,
    SNAPSHOT_PER_DOUBLING,
    mark,
)
from app.runtime.ports.journal import Snapshot
from tests.runtime.world import World

HOT = (HOT_LEAST, HOT_PER_DOUBLING)
LASTING = (SNAPSHOT_LEAST, SNAPSHOT_PER_DOUBLING)
LONG = 50_000


def marks(least: int, per_doubling: int) -> list[int]:
    """Return every place of a copy in a long session."""
    return sorted({mark(seq, least, per_doubling) for seq in range(LONG + 1)} - {0})


def test_snapshots_stand_at_doubling_distances() -> None:
    assert marks(*LASTING)[:6] == [256, 512, 1024, 2048, 4096, 8192]
    assert marks(*HOT)[:10] == [64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048]


@pytest.mark.req("STATE-9")
@pytest.mark.case("C126")
@pytest.mark.parametrize(("places", "factor"), [(LASTING, 2), (HOT, 4)], ids=["lasting", "hot"])
def test_what_is_copied_is_no_more_than_a_few_times_the_journal(
    places: tuple[int, int], factor: int
) -> None:
    """At every length, counting a copy at `seq` as `seq`: as if every event were in it whole."""
    copied = 0
    for at in marks(*places):
        copied += at
        assert copied < factor * at, at


@pytest.mark.req("STATE-9")
@pytest.mark.parametrize(("places", "part"), [(LASTING, 2), (HOT, 3)], ids=["lasting", "hot"])
def test_what_is_read_beside_a_copy_is_a_part_of_the_journal(
    places: tuple[int, int], part: int
) -> None:
    """Whatever stands behind the last copy when its owner is lost."""
    for at, following in pairwise(marks(*places)):
        assert following - 1 - at < max(places[0], following / part)
        assert mark(following - 1, *places) == at


@dataclass
class Written:
    """What one session wrote: its journal, and each copy when it had so many events."""

    world: World
    hot: list[Snapshot] = field(default_factory=list)
    lasting: list[Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        put, save = self.world.hot.put, self.world.store.save_snapshot

        async def putting(session_id: str, snapshot: Snapshot) -> None:
            self.hot.append(snapshot)
            await put(session_id, snapshot)

        async def saving(session_id: str, snapshot: Snapshot) -> None:
            self.lasting.append(snapshot)
            await save(session_id, snapshot)

        self.world.hot.put = putting  # type: ignore[method-assign]
        self.world.store.save_snapshot = saving  # type: ignore[method-assign]

    async def talk(self, turns: int) -> str:
        async with self.world.running():
            session = await self.world.create("x" * 2000)
            for n in range(2, turns + 1):
                await self.world.until_turn(session, n - 1)
                await self.world.say(session, "x" * 2000)
            await self.world.until_turn(session, turns)
        return session

    def up_to(self, session: str, events: int, of: Callable[["Written"], list[Snapshot]]) -> float:
        """Return how many bytes of copies there were for each byte of journal, up to an event."""
        journal = sum(len(e.payload) for e in self.world.store.events[session][:events])
        return sum(len(copy.payload) for copy in of(self) if copy.seq <= events) / journal


@pytest.mark.req("STATE-9")
@pytest.mark.case("C126")
async def test_a_session_of_many_turns_copies_a_few_times_its_journal(world: World) -> None:
    """Also to Redis, though the session comes to rest after every turn."""
    written = Written(world)
    session = await written.talk(turns=160)
    head = world.store.rows[session].head
    assert head > 1024
    assert [copy.seq // SNAPSHOT_LEAST for copy in written.lasting] == [1, 2, 4]
    for events in range(HOT_LEAST, head, HOT_LEAST):
        assert written.up_to(session, events, lambda w: w.lasting) < 2
        assert written.up_to(session, events, lambda w: w.hot) < 3
    rests = [copy for copy in written.hot if copy.seq <= HOT_LEAST]
    assert len(written.hot) - len(rests) == len(
        [at for at in marks(*HOT) if HOT_LEAST <= at <= head]
    )
