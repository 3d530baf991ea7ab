"""A session's trace as Server-Sent Events: frames to bytes, and the answer that sends them.

    follow ──frames──► Outbox (bounded) ──a slice of what is ready──► send

The reader's speed is the outbox's: when it is full, following pauses, and what comes meanwhile is
read from the journal later. The session never waits for a reader.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from app.api.streams.places import Places
from app.api.wire import problems
from app.runtime.errors import PortError, StoreUnavailable
from app.runtime.sessions.audience import Seat
from app.runtime.streams.frames import Frame

RETRY: Final = b"retry: 2000\n\n"
PING: Final = b": ping\n\n"
FIRST_S: Final = 0.1
"""How long the headers wait for a first frame, so that an early fault is still a problem."""

STALL_S: Final = 60.0
"""A reader that takes nothing for so long is let go; it can come back with its last id."""

DRAIN_S: Final = 2.0
"""How long a reader may take over the last chunk when the process is ending."""

FULL_BYTES: Final = 256 * 1024
SLICE_BYTES: Final = 64 * 1024
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store"),
    (b"x-accel-buffering", b"no"),
)
_END: Final = b"\n\n"
_CLOSED: Final = "session.closed"


def encode(frame: Frame) -> bytes:
    """Return a frame as it goes over the wire; the payload is one line of JSON."""
    if not frame.type:
        return PING
    if frame.seq is None:
        return b"event: %b\ndata: %b\n\n" % (frame.type.encode(), frame.payload)
    return b"event: %b\nid: %d\ndata: %b\n\n" % (frame.type.encode(), frame.seq, frame.payload)


def pieces(frame: Frame) -> tuple[bytes, ...]:
    """Return the parts of a frame on the wire; a large payload is not copied, for it is shared."""
    whole = len(frame.payload) < SLICE_BYTES
    if whole:
        return (encode(frame),)
    head = encode(replace(frame, payload=b"")).removesuffix(_END)
    return head, frame.payload, _END


class Outbox:
    """What was followed and not sent yet; bounded by bytes."""

    def __init__(self) -> None:
        """Start with the reconnection time, which every reader is told first."""
        self._parts: deque[bytes] = deque([RETRY])
        self._begun = 0  # how much of the first part was taken
        self._size = len(RETRY)
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self.over = False
        self.ended = False
        self.failed = False

    @property
    def drained(self) -> bool:
        """Return whether nothing is left of a stream that has ended."""
        return self.over and not self._parts

    async def put(self, frame: Frame) -> None:
        """Add a frame; returns only when there is room for another, after the end never."""
        if not self.over:
            parts = pieces(frame)
            self._parts.extend(parts)
            self._size += sum(map(len, parts))
            self._ready.set()
        while self.over or self._size >= FULL_BYTES:
            self._room.clear()
            await self._room.wait()

    def end(self, *, whole: bool = False) -> None:
        """Let the stream end once everything is sent; `whole`, since there is nothing more."""
        self.over = True
        self.ended = self.ended or whole
        self._ready.set()

    def fail(self, fault: bytes) -> None:
        """End with an event that says why; it has no id, so a reader comes back where it was."""
        self.failed = True
        part = b"event: error\ndata: %b\n\n" % fault
        self._parts.append(part)
        self._size += len(part)
        self.end()

    async def wait(self) -> None:
        """Return when something can be taken."""
        await self._ready.wait()

    def take(self) -> bytes:
        """Return what is ready as one chunk, at most a slice: a stalled reader holds no more."""
        taken, left = [], SLICE_BYTES
        while self._parts and left:
            part = self._parts[0]
            piece = part[self._begun : self._begun + left]
            taken.append(piece)
            left -= len(piece)
            self._begun += len(piece)
            if self._begun == len(part):
                self._parts.popleft()
                self._begun = 0
        chunk = b"".join(taken)
        self._size -= len(chunk)
        if not self._parts and not self.over:
            self._ready.clear()
        if self._size < FULL_BYTES:
            self._room.set()
        return chunk


class EventStream:
    """The answer to a reader. It ends with the frames, the reader, or the process."""

    def __init__(
        self,
        frames: AsyncGenerator[Frame, None],
        *,
        draining: asyncio.Event,
        places: Places,
        seat: Seat | None,
        instance: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        head: int = 0,
    ) -> None:
        """Send these frames; `instance` names the request in a problem.

        An end of the session before its `head` is no end: a fork has it from its parent.
        """
        self._frames = frames
        self._places = places
        self._seat = seat
        self._draining = draining
        self._instance = instance
        self._headers = headers
        self._head = head

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serve the reader.

        Raises:
            HttpProblem: when this process has too many readers.
            StoreUnavailable: when nothing could be read and nothing was sent.

        """
        outbox = Outbox()
        with self._places.place():
            if self._seat is not None:
                self._seat.take()
            try:
                await self._serve(outbox, receive, send)
            finally:
                if self._seat is not None:
                    self._seat.leave(early=not outbox.ended)

    async def _serve(self, outbox: Outbox, receive: Receive, send: Send) -> None:
        began = True
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._follow(outbox)),
                    group.create_task(_until_gone(receive, outbox)),
                    group.create_task(self._until_draining(outbox, limit)),
                ]
                try:
                    began = await _send_all(outbox, send, self._headers)
                finally:
                    for helper in helpers:
                        helper.cancel()
        if not began:
            message = "The journal could not be read."
            raise StoreUnavailable(message)

    async def _follow(self, outbox: Outbox) -> None:
        async with aclosing(self._frames) as frames:
            try:
                async for frame in frames:
                    await outbox.put(frame)
                    if frame.type == _CLOSED and (frame.seq or 0) >= self._head:
                        break
            except PortError as error:
                problem = problems.known(error) or problems.internal()
                outbox.fail(problems.document(problem, self._instance))
            else:
                outbox.end(whole=True)

    async def _until_draining(self, outbox: Outbox, limit: asyncio.Timeout) -> None:
        await self._draining.wait()
        outbox.end()
        limit.reschedule(asyncio.get_running_loop().time() + DRAIN_S)


async def _send_all(outbox: Outbox, send: Send, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Send until the end; False when the first read failed and nothing was sent."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_S):
            await outbox.wait()
    if outbox.failed:
        return False
    start = {"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]}
    await send(start)
    while True:
        chunk = outbox.take()
        over = outbox.drained
        message = {"type": "http.response.body", "body": chunk, "more_body": not over}
        if not await _sent(send, message) or over:
            return True
        await outbox.wait()


async def _sent(send: Send, message: Message) -> bool:
    """Send a chunk; False when the reader has taken nothing for too long."""
    try:
        async with asyncio.timeout(STALL_S):
            await send(message)
    except TimeoutError:
        return False
    return True


async def _until_gone(receive: Receive, outbox: Outbox) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outbox.end()
