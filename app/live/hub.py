"""The hub: live events and nudges between processes, over Redis pub/sub.

Readers of this process get events of this process directly; Redis carries them to other processes,
and only while one of those has said that it follows the session. Nothing here is a truth: whoever
may have missed something is told so (None) and reads the journal.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from struct import Struct
from typing import Final

from app.live.link import Command, Link
from app.live.reader import Reader
from app.live.subscription import Subscription
from app.runtime.errors import LiveUnavailable, PortError
from app.runtime.ports.live import LiveEvent

REPEAT_S: Final = 5.0
KEEP_S: Final = 15.0
SETTLES_S: Final = 10.0
"""How long after Redis was away every process that lives has subscribed to it again."""

_IDS_A_MESSAGE: Final = 500
_ORIGIN_BYTES: Final = 12
_HEADER: Final = Struct(">qBI")
_NO_SEQ: Final = -1

NudgeFallback = Callable[[str], Awaitable[None]]


class RedisHub:
    """Fan-out over one Redis. `run` must be running.

    `nudge_fallback` carries nudges while Redis is away (a NOTIFY of Postgres).
    """

    def __init__(
        self, link: Link, *, prefix: str = "surefoot", nudge_fallback: NudgeFallback | None = None
    ) -> None:
        """Use channels that begin with the prefix."""
        self._link = link
        self._clock = link.clock
        self._fallback = nudge_fallback
        self._origin = self._clock.entropy(_ORIGIN_BYTES)
        self._live = f"{prefix}:live:"
        self._control = f"{prefix}:follow"
        self._nudges = f"{prefix}:nudge"
        self._rests = f"{prefix}:rest"
        self._readers: dict[str, set[Reader]] = {}
        self._remote: dict[str, float] = {}
        self._joined = False
        self._settled_s = 0.0
        self._callbacks: list[Callable[[str], None]] = []
        self._on_rest: list[Callable[[str], None]] = []
        self._subscription = Subscription(link, self, (self._control, self._nudges))

    async def run(self) -> None:
        """Keep the subscription and say every few seconds what is followed here, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._subscription.run())
            group.create_task(self._repeat())

    async def _repeat(self) -> None:
        while True:
            await self._clock.sleep(REPEAT_S)
            now = self._clock.boot_s()
            self._remote = {i: until for i, until in self._remote.items() if until > now}
            await self._announce(self._readers)
            await self._subscription.check()

    async def _announce(self, ids: Iterable[str]) -> None:
        known = list(ids)
        messages: list[Command] = [
            (
                "PUBLISH",
                self._control,
                self._origin + "\n".join(known[n : n + _IDS_A_MESSAGE]).encode(),
            )
            for n in range(0, len(known), _IDS_A_MESSAGE)
        ]
        if messages:
            with contextlib.suppress(LiveUnavailable):
                await self._link.run(messages)

    @property
    def connected(self) -> bool:
        """Return whether other processes are heard now."""
        return self._subscription.connected

    def followed(self, session_id: str) -> bool:
        """Return whether some process has a reader on this session."""
        return session_id in self._readers or self._followed_elsewhere(session_id)

    def _followed_elsewhere(self, session_id: str) -> bool:
        until = self._remote.get(session_id)
        return until is not None and until > self._clock.boot_s()

    async def publish(self, events: Sequence[LiveEvent]) -> None:
        """Pass events on, one message a session; silently not, when Redis is away."""
        for event in events:
            self._give(event)
        for session_id, own in groupby(events, _session_of):
            if self._followed_elsewhere(session_id):
                message = self._origin + b"".join(map(_pack, own))
                self._link.post([("PUBLISH", self._live + session_id, message)])

    def _give(self, event: LiveEvent) -> None:
        for reader in self._readers.get(event.session_id, ()):
            reader.give(event)

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncIterator[AsyncIterator[LiveEvent | None]]:
        """Follow a session; entered only once the subscription is confirmed (or impossible)."""
        reader = Reader()
        first = session_id not in self._readers
        self._readers.setdefault(session_id, set()).add(reader)
        try:
            await self._subscription.add(self._live + session_id)
            if first:
                await self._announce([session_id])
            yield reader.events()
        finally:
            readers = self._readers[session_id]
            readers.discard(reader)
            if not readers:
                del self._readers[session_id]
                await self._subscription.drop(self._live + session_id)

    async def readers(self, session_id: str) -> int | None:
        """Return how many processes have readers on this session; None when nobody can tell.

        Just after Redis was away other processes may not have come back to it yet.
        """
        if not self.connected or self._clock.boot_s() < self._settled_s:
            return None
        try:
            (answer,) = await self._link.run([("PUBSUB", "NUMSUB", self._live + session_id)])
        except LiveUnavailable:
            return None
        return int(answer[1]) if isinstance(answer, list) else None

    async def nudge(self, session_id: str) -> None:
        """Tell workers that a session has become due or got a message."""
        self._call_back(session_id)
        message = self._origin + session_id.encode()
        try:
            await self._link.run([("PUBLISH", self._nudges, message)])
        except LiveUnavailable:
            if self._fallback:
                # A nudge is a hint: without it the next poll finds the session.
                with contextlib.suppress(PortError):
                    await self._fallback(session_id)

    def on_nudge(self, callback: Callable[[str], None]) -> None:
        """Call back for each nudge."""
        self._callbacks.append(callback)

    def nudged(self, session_id: str) -> None:
        """Take a nudge that came another way (the fallback of another process)."""
        self._call_back(session_id)

    def _call_back(self, session_id: str) -> None:
        for callback in self._callbacks:
            callback(session_id)

    def rested(self, session_id: str) -> None:
        """Tell every process that a session has come to rest, or a turn of it to its end.

        Dropped when Redis is away.
        """
        self._has_rested(session_id)
        self._link.post([("PUBLISH", self._rests, self._origin + session_id.encode())])

    def on_rest(self, callback: Callable[[str], None]) -> None:
        """Call back each time that is told of a session; to be called before `run`."""
        self._on_rest.append(callback)
        self._subscription.keep(self._rests)

    def _has_rested(self, session_id: str) -> None:
        for callback in self._on_rest:
            callback(session_id)

    def heard(self, channel: str, data: bytes) -> None:
        """Take a message of another process; what this one sent it has given already."""
        if data[:_ORIGIN_BYTES] == self._origin:
            return
        if channel == self._control:
            until = self._clock.boot_s() + KEEP_S
            self._remote.update(dict.fromkeys(data[_ORIGIN_BYTES:].decode().split("\n"), until))
        elif channel == self._nudges:
            self._call_back(data[_ORIGIN_BYTES:].decode())
        elif channel == self._rests:
            self._has_rested(data[_ORIGIN_BYTES:].decode())
        else:
            for event in _unpack(channel.removeprefix(self._live), data):
                self._give(event)

    def reconnected(self) -> None:
        """Tell every reader that something may have been missed."""
        if self._joined:
            self._settled_s = self._clock.boot_s() + SETTLES_S
        self._joined = True
        for readers in self._readers.values():
            for reader in readers:
                reader.miss()


def _session_of(event: LiveEvent) -> str:
    return event.session_id


def _pack(event: LiveEvent) -> bytes:
    """Return an event as part of a message: seq, lengths of type and payload, type, payload."""
    seq = _NO_SEQ if event.seq is None else event.seq
    kind = event.type.encode()
    return _HEADER.pack(seq, len(kind), len(event.payload)) + kind + event.payload


def _unpack(session_id: str, data: bytes) -> Iterator[LiveEvent]:
    """Yield the events of a message; what is cut short is left out, and the gap will be seen."""
    at = _ORIGIN_BYTES
    while at + _HEADER.size <= len(data):
        seq, kind_size, size = _HEADER.unpack_from(data, at)
        kind_end = at + _HEADER.size + kind_size
        at_end = kind_end + size
        if at_end > len(data):
            return
        kind = data[at + _HEADER.size : kind_end].decode("ascii", "replace")
        payload = data[kind_end:at_end]
        yield LiveEvent(session_id, None if seq == _NO_SEQ else seq, payload, kind)
        at = at_end
