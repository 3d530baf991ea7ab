"""Frames opened once: many readers, stalled ones too, share the bytes of an event."""

import asyncio
import gc
import tracemalloc

import pytest
from typing_extensions import override

from app.runtime.ports.live import LiveEvent
from app.runtime.streams import follow
from app.runtime.streams.frames import FRAME_BYTES, Opened
from tests.fakes.api_ports import PlainCipher
from tests.fakes.interposed import Faults, interposed
from tests.runtime.test_follow import Author, everything
from tests.runtime.world import World, seqs

SESSION = "ses_1"


class CountingCipher(PlainCipher):
    """Counts what it opens."""

    opened = 0

    @override
    def open(self, sealed: bytes, context: bytes) -> bytes:
        self.opened += 1
        return super().open(sealed, context)


def event(cipher: PlainCipher, seq: int, size: int) -> LiveEvent:
    return LiveEvent(SESSION, seq, cipher.seal(b"x" * size, b"event:%d" % seq), "step.finished")


@pytest.fixture
def cipher(monkeypatch: pytest.MonkeyPatch) -> CountingCipher:
    monkeypatch.setattr("app.runtime.streams.frames.event_context", lambda seq: b"event:%d" % seq)
    return CountingCipher()


def test_an_event_is_opened_once_for_all_readers(cipher: CountingCipher) -> None:
    frames = Opened()
    item = event(cipher, 1, 100)
    first = frames.frame(SESSION, item, cipher)
    assert frames.frame(SESSION, item, cipher) is first
    assert cipher.opened == 1
    assert frames.frame(SESSION, item, None).payload == b""
    frames.frame("ses_2", item, cipher)
    assert cipher.opened == 2


def test_what_nobody_holds_goes_when_there_is_too_much(cipher: CountingCipher) -> None:
    frames = Opened(most_bytes=2 * (100 + FRAME_BYTES) + 50)
    items = [event(cipher, seq, 100) for seq in range(1, 6)]
    held = frames.frame(SESSION, items[0], cipher)
    for item in items[1:]:
        frames.frame(SESSION, item, cipher)
    gc.collect()
    assert cipher.opened == 5
    assert frames.frame(SESSION, items[0], cipher) is held
    frames.frame(SESSION, items[4], cipher)
    assert cipher.opened == 5
    frames.frame(SESSION, items[1], cipher)
    assert cipher.opened == 6


@pytest.mark.parametrize("size", [40, 300, 4000])
def test_what_is_kept_takes_no_more_than_it_may(cipher: CountingCipher, size: int) -> None:
    """Small events too, of many sessions: most of what those take is not their payload."""
    most = 256 * 1024
    items = [event(cipher, seq, size) for seq in range(1, 3000)]
    gc.collect()
    tracemalloc.start()
    frames = Opened(most_bytes=most)
    for item in items:
        frames.frame(f"ses_{item.seq:026}", item, cipher)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1.3 * most


async def test_the_journal_is_read_in_pages_bounded_by_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled reader holds a page; five hundred large events would be a large page."""
    monkeypatch.setattr(follow, "PAGE_BYTES", 1)
    author, faults = Author(world), Faults()
    session = await author.begin()
    for kind in ("step.finished", "step.finished", "turn.ended"):
        author.commit(kind)
    follower = follow.Follower(
        journal=interposed(world.store, faults), hub=world.hub, clock=world.clock
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(follower.run())
        await asyncio.sleep(0)
        found = [f async for f in follower.follow(session, world.cipher(session), 0)]
        running.cancel()
    assert seqs(found) == everything(world, session)
    assert faults.calls.count("read") == len(found) + 1
