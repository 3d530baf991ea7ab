"""Readers: whatever breaks, each sees the journal once, in order, to its end."""

import asyncio
import contextlib
import random
from contextlib import aclosing
from dataclasses import dataclass

from app.runtime.errors import StoreUnavailable
from app.runtime.ports.sessions import SessionRow
from app.runtime.streams.frames import Frame
from tests.simulation.cluster import ApiProcess, Cluster
from tests.simulation.small import LinkedCipher

SILENCE_S = 8.0
PROMPT_S = 1.0
_LOST = (StoreUnavailable, ConnectionError, TimeoutError)


@dataclass(eq=False)
class Tape:
    """What one reader has seen of a session, over all his connections."""

    cluster: Cluster
    session_id: str
    last: int = 0
    connection: int = 0
    heard_s: float = 0.0
    gone: bool = False
    """He has left for good."""

    @property
    def ends_it(self) -> bool:
        """Return whether the session is to end with its readers."""
        return self._row().on_disconnect == "cancel"

    def _row(self) -> SessionRow:
        return self.cluster.store.rows[self.session_id].new.row()

    async def play(self, chance: random.Random) -> None:
        """Follow for ever, connecting again wherever the stream breaks off."""
        while not self.gone:
            with contextlib.suppress(IndexError):  # no API lives at the moment
                await self._connect(chance.choice(self.cluster.apis), chance)
            self.connection += 1
            self.gone = self.ends_it and chance.random() < 0.5
            await asyncio.sleep(0.1 + chance.random())

    async def _connect(self, api: ApiProcess, chance: random.Random) -> None:
        patience_s = chance.choice((1.0, 4.0, None, None))
        slow_s = chance.choice((0.0, 0.0, 0.0, 0.05))
        forever = chance.random() < 0.3
        me, promises = self.connection, self.cluster.promises
        self.heard_s = began_s = self.cluster.loop.time()

        async def stream() -> None:
            seat = api.audience.seat(self._row())
            if seat is None:
                await self._read(api, me, began_s, slow_s, forever=forever)
                return
            seat.take()
            mine, whole = promises.came(self.session_id, api.process), False
            try:
                whole = await self._read(api, me, began_s, slow_s, forever=forever)
            finally:
                seat.leave(early=not whole)
                promises.went(self.session_id, mine, early=not whole)

        try:
            async with asyncio.timeout(patience_s), asyncio.TaskGroup() as group:
                watching = group.create_task(self._while_heard())
                await api.call(stream)
                watching.cancel()
        except* _LOST:
            pass  # he connects again

    async def _read(
        self, api: ApiProcess, me: int, began_s: float, slow_s: float, *, forever: bool
    ) -> bool:
        """Read to the end of a stream; return whether it was its own end."""
        cipher = LinkedCipher(self.session_id)
        follow = api.follower.follow(self.session_id, cipher, self.last, forever=forever)
        async with aclosing(follow) as frames:
            async for frame in frames:
                if self.connection != me:
                    return False  # nobody is at the other end any more
                self._take(frame, api, None if slow_s else began_s)
                if slow_s:
                    await asyncio.sleep(slow_s)
        return True

    async def _while_heard(self) -> None:
        """Give a connection up on which nothing comes any more, not even a sign of life."""
        loop = self.cluster.loop
        while loop.time() - self.heard_s < SILENCE_S:  # noqa: ASYNC110 - silence sets no event
            await asyncio.sleep(SILENCE_S / 2)
        raise TimeoutError

    def _take(self, frame: Frame, api: ApiProcess, began_s: float | None) -> None:
        audit = self.cluster.audit
        self.heard_s = self.cluster.loop.time()
        if frame.seq is None:
            return
        ledger = audit.ledger(self.session_id)
        if frame.seq != self.last + 1:
            audit.fail(f"a reader of {self.session_id} got {frame.seq} after {self.last}")
        elif frame.seq > ledger.seq:
            audit.fail(f"a reader of {self.session_id} got {frame.seq} before it was written")
        elif frame.payload != ledger.plain[frame.seq - 1]:
            audit.fail(f"a reader of {self.session_id} got another event {frame.seq}")
        else:
            self._in_time(frame.seq, began_s, ledger.told[frame.seq - 1][0], api)
        self.last = frame.seq

    def _in_time(self, seq: int, began_s: float | None, told_s: float, api: ApiProcess) -> None:
        if began_s is None or not self.cluster.weather.calm or not api.process.undisturbed:
            return
        late_s = self.cluster.loop.time() - max(began_s, told_s)
        if late_s > PROMPT_S:
            what = f"{seq} of {self.session_id} {late_s:.1f} s late"
            self.cluster.audit.fail(f"a reader got {what}, though nothing fails")

    @property
    def complete(self) -> bool:
        return self.gone or self.last == self.cluster.audit.ledger(self.session_id).seq
