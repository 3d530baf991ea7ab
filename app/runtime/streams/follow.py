"""Reading a session's trace while it grows: the journal first, then live, a gap means the journal.

Every reader sees each durable event exactly once and in order, whichever process wrote it and
whatever is lost between; a delta is only seen by those who listen when it comes.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from app.core.events import SessionClosed, TurnEnded
from app.runtime.errors import PortError, StoreUnavailable
from app.runtime.ports.journal import HeadInfo, JournalStore
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.live import Hub, LiveEvent
from app.runtime.ports.process import Clock
from app.runtime.streams.frames import PING, Frame, Opened

PAGE: Final = 500
PAGE_BYTES: Final = 256 * 1024
HEADS_S: Final = 2.0
LOOK_S: Final = 0.5
"""How long one who waits for a condition relies on events alone: it can come without any."""

PATIENCE_S: Final = 60.0
MAILBOX: Final = 1024
ENDS: Final = frozenset({TurnEnded.TYPE, SessionClosed.TYPE})


class Mailbox:
    """What one reader has not taken yet; bounded, and when it overflows the journal is read.

    `newest` is the highest number that has come here or was read; `ends` says that its reader
    wants to know when the session has come to rest.
    """

    def __init__(self, *, ends: bool = True) -> None:
        """Start empty."""
        self.newest = 0
        self.ends = ends
        self._items: deque[LiveEvent] = deque()
        self._something = asyncio.Event()
        self._missed = False

    def put(self, item: LiveEvent | None) -> None:
        """Add a live event, or note that something may have been missed."""
        if item is None or len(self._items) >= MAILBOX:
            self._missed = True
            self._items.clear()
        else:
            self._items.append(item)
            self.newest = max(self.newest, item.seq or 0)
        self._something.set()

    async def take(self) -> list[LiveEvent] | None:
        """Return what came, or None when the journal must be read again."""
        await self._something.wait()
        self._something.clear()
        items = list(self._items)
        self._items.clear()
        if self._missed:
            self._missed = False
            return None
        return items


class Follower:
    """Follows sessions for all readers of this process."""

    def __init__(
        self,
        *,
        journal: JournalStore,
        hub: Hub,
        clock: Clock,
        ping_s: float = 15.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Start with no readers.

        One who has begun is kept for `patience_s` while Postgres is away: if he came back then, he
        would be refused.
        """
        self._journal = journal
        self._hub = hub
        self._clock = clock
        self._ping_s = ping_s
        self._patience_s = patience_s
        self._group: asyncio.TaskGroup | None = None
        self._readers: dict[str, set[Mailbox]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._opened = Opened()
        hub.on_rest(self._rested)

    async def run(self) -> None:
        """Serve readers, comparing the heads of what they follow with the journal every 2 s.

        The loss of a last event leaves no gap that a reader could notice by itself, and a session
        can come to rest without a further event.
        """
        async with asyncio.TaskGroup() as self._group:
            while True:
                await self._clock.sleep(HEADS_S)
                await self._compare_heads()

    async def _compare_heads(self) -> None:
        if not self._readers:
            return
        try:
            heads = await self._journal.heads(list(self._readers))
        except PortError:
            return  # the next round asks again
        for session_id, mailboxes in self._readers.items():
            found = heads.get(session_id)
            for mailbox in mailboxes:
                if _has_news(found, mailbox):
                    mailbox.put(None)

    @asynccontextmanager
    async def _mailbox(self, session_id: str, *, ends: bool) -> AsyncIterator[Mailbox]:
        """Enter once live events of the session are being gathered."""
        mailbox = Mailbox(ends=ends)
        self._readers.setdefault(session_id, set()).add(mailbox)
        try:
            async with self._hub.subscribe(session_id) as live:
                pump = self._pumping(live, mailbox)
                try:
                    yield mailbox
                finally:
                    pump.cancel()
                    await asyncio.wait([pump])  # it may be inside `live`, which is closed next
        finally:
            readers = self._readers[session_id]
            readers.discard(mailbox)
            if not readers:
                del self._readers[session_id]

    def _pumping(
        self, live: AsyncIterator[LiveEvent | None], mailbox: Mailbox
    ) -> asyncio.Task[None]:
        if self._group is None:
            message = "Follower.run must be running before a session can be followed."
            raise RuntimeError(message)
        return self._group.create_task(_pump(live, mailbox))

    async def follow(
        self, session_id: str, cipher: SessionCipher | None, after: int, *, forever: bool = False
    ) -> AsyncGenerator[Frame, None]:
        """Yield the trace after a sequence number until no turn is alive and all is read.

        `forever` goes on from turn to turn. A sign of life comes when nothing else did for a while.
        Without a cipher the frames have no payload: enough for those who only wait.

        Raises:
            StoreUnavailable: when Postgres is away from the start, or for long.

        """
        async with self._mailbox(session_id, ends=not forever) as mailbox:
            cursor, items, patience_s = after, None, 0.0
            while True:
                if items is None:
                    read = self._from_journal(session_id, cipher, cursor, patience_s)
                    async for frame in read:
                        yield frame
                        cursor = frame.seq or cursor
                    patience_s = self._patience_s
                else:
                    fresh, cursor, whole = _in_order(items, cursor)
                    for item in fresh:  # opened one by one: a reader may stall at any of them
                        yield self._opened.frame(session_id, item, cipher)
                    if not whole:
                        items = None
                        continue
                mailbox.newest = max(mailbox.newest, cursor)
                if not forever and await self._over(session_id, cursor, items):
                    return
                try:
                    async with asyncio.timeout(self._ping_s):
                        items = await mailbox.take()
                except TimeoutError:
                    items = []
                    yield PING

    async def _from_journal(
        self, session_id: str, cipher: SessionCipher | None, after: int, patience_s: float
    ) -> AsyncIterator[Frame]:
        deadline = self._clock.boot_s() + patience_s
        while True:
            try:
                page = deque(await self._journal.read(session_id, after, PAGE, PAGE_BYTES))
            except StoreUnavailable:
                if self._clock.boot_s() >= deadline:
                    raise
                yield PING
                await self._clock.sleep(HEADS_S)
                continue
            whole = len(page) < PAGE and sum(len(sealed.payload) for sealed in page) < PAGE_BYTES
            while page:  # a reader may stall at any of them: what he has is not held here too
                after = page[0].seq
                yield self._opened.frame(session_id, page.popleft(), cipher)
            if whole:
                return

    async def _over(self, session_id: str, cursor: int, items: list[LiveEvent] | None) -> bool:
        """Return whether the reader has everything and no turn will bring more of its own."""
        if items is not None and not any(item.type in ENDS for item in items):
            return False
        try:
            found = (await self._journal.heads([session_id])).get(session_id)
        except StoreUnavailable:
            return False  # the next comparison of heads tells
        return found is None or (found.idle and found.head <= cursor)

    async def until(
        self,
        session_id: str,
        done: Callable[[], Awaitable[bool]],
        *,
        within_s: float,
        look_s: float = LOOK_S,
    ) -> bool:
        """Ask whether it is done each time the session rests or a turn ends, and each `look_s`.

        Return False when the time is over before it was.
        """
        deadline = self._clock.boot_s() + within_s
        rest = asyncio.Event()
        self._waiting.setdefault(session_id, set()).add(rest)
        try:
            while not await done():
                left_s = deadline - self._clock.boot_s()
                if left_s <= 0:
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, look_s)):
                        await rest.wait()
                rest.clear()
        finally:
            waiting = self._waiting[session_id]
            waiting.discard(rest)
            if not waiting:
                del self._waiting[session_id]
        return True

    def _rested(self, session_id: str) -> None:
        for rest in self._waiting.get(session_id, ()):
            rest.set()


def _has_news(found: HeadInfo | None, mailbox: Mailbox) -> bool:
    """Return whether a reader who hears nothing should look into the journal."""
    if found is None:
        return mailbox.ends
    return found.head > mailbox.newest or (found.idle and mailbox.ends)


async def _pump(live: AsyncIterator[LiveEvent | None], mailbox: Mailbox) -> None:
    async for item in live:
        mailbox.put(item)


def _in_order(items: list[LiveEvent], cursor: int) -> tuple[list[LiveEvent], int, bool]:
    """Return the events that follow the cursor, the new cursor, and False at a gap."""
    fresh: list[LiveEvent] = []
    seen = [n for n, item in enumerate(items) if item.seq is not None and item.seq <= cursor]
    stale = seen[-1] if seen else -1
    for n, item in enumerate(items):
        if item.seq is None:
            if n > stale:  # deltas of what was read are stale; events before it need not be
                fresh.append(item)
        elif item.seq == cursor + 1:
            cursor = item.seq
            fresh.append(item)
        elif item.seq > cursor:
            return fresh, cursor, False
    return fresh, cursor, True
