"""One reader's answer by itself: how much it holds, and when it lets go."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from app.api.streams import sse
from app.api.streams.places import Places
from app.api.streams.sse import EventStream, Outbox
from app.runtime.streams.frames import PING, Frame
from tests.waiting import until


class Pipe:
    """An ASGI connection that takes `room` messages and then nothing."""

    def __init__(self, room: int) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self._room = asyncio.Semaphore(room)

    async def send(self, message: Message) -> None:
        await self._room.acquire()
        self.sent.append(message)

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Source:
    """Frames without end."""

    def __init__(self, size: int) -> None:
        self.given = 0
        self.closed = False
        self._payload = b'"' + b"x" * size + b'"'

    async def frames(self) -> AsyncGenerator[Frame, None]:
        try:
            while True:
                self.given += 1
                yield Frame("step.finished", self.given, self._payload)
        finally:
            self.closed = True


def _stream(source: Source) -> EventStream:
    return EventStream(
        source.frames(), draining=asyncio.Event(), places=Places(9), seat=None, instance="/"
    )


@pytest.mark.case("C082")
async def test_a_reader_that_takes_nothing_pauses_the_following() -> None:
    source, pipe = Source(10_000), Pipe(room=1)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_stream(source)({}, pipe.receive, pipe.send))
        for _ in range(200):
            await asyncio.sleep(0)
        held = source.given * 10_000
        assert held < 3 * sse.FULL_BYTES
        serving.cancel()
    assert source.closed


@pytest.mark.case("C082")
async def test_a_stalled_reader_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "STALL_S", 0.02)
    source, pipe = Source(10), Pipe(room=3)
    async with asyncio.timeout(3):
        await _stream(source)({}, pipe.receive, pipe.send)
    assert source.closed
    assert pipe.sent[-1]["more_body"] is True


@pytest.mark.case("C076")
async def test_a_stalled_reader_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "DRAIN_S", 0.02)
    source, pipe, draining = Source(10), Pipe(room=3), asyncio.Event()
    stream = EventStream(
        source.frames(), draining=draining, places=Places(9), seat=None, instance="/"
    )
    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        serving = group.create_task(stream({}, pipe.receive, pipe.send))
        await until(lambda: len(pipe.sent) == 3)
        draining.set()
        await serving
    assert source.closed


@pytest.mark.case("C055")
async def test_a_reader_that_leaves_ends_the_following() -> None:
    source, pipe = Source(10), Pipe(room=10_000)

    async def leave() -> None:
        await asyncio.sleep(0.01)
        pipe.gone.set()

    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        group.create_task(leave())
        await _stream(source)({}, pipe.receive, pipe.send)
    assert source.closed


@pytest.mark.req("API-3")
def test_frames_on_the_wire() -> None:
    assert sse.encode(PING) == b": ping\n\n"
    assert sse.encode(Frame("delta", None, b"{}")) == b"event: delta\ndata: {}\n\n"
    durable = sse.encode(Frame("turn.ended", 7, b'{"seq":7}'))
    assert durable == b'event: turn.ended\nid: 7\ndata: {"seq":7}\n\n'


async def test_what_is_ready_is_one_chunk() -> None:
    outbox = Outbox()
    for seq in (1, 2):
        await outbox.put(Frame("a", seq, b"{}"))
    chunk = outbox.take()
    assert chunk.startswith(b"retry: 2000\n\n")
    assert chunk.count(b"event: a") == 2
    assert outbox.take() == b""


async def test_a_large_event_is_sent_in_slices_and_never_copied_whole() -> None:
    frame = Frame("turn.ended", 7, b'"' + b"x" * 950_000 + b'"')
    outbox, chunks = Outbox(), []
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.put(frame))
        await outbox.wait()
        await asyncio.sleep(0)
        assert any(part is frame.payload for part in outbox._parts)  # noqa: SLF001
        while chunk := outbox.take():
            chunks.append(chunk)
    assert max(map(len, chunks)) == sse.SLICE_BYTES
    assert b"".join(chunks) == sse.RETRY + sse.encode(frame)


async def test_after_the_end_what_is_there_is_sent_and_no_more() -> None:
    frame, outbox, sent = Frame("a", 1, b"x" * 100_000), Outbox(), b""
    await outbox.put(frame)
    outbox.end()
    async with asyncio.TaskGroup() as group:
        late = group.create_task(outbox.put(frame))
        while not outbox.drained:
            await outbox.wait()
            sent += outbox.take()
            await asyncio.sleep(0)
        late.cancel()
    assert sent == sse.RETRY + sse.encode(frame)


@pytest.mark.req("API-3")
async def test_the_end_of_the_parent_does_not_end_the_stream_of_a_fork() -> None:
    async def frames() -> AsyncGenerator[Frame, None]:
        for seq, kind in enumerate(("session.closed", "session.forked", "session.closed"), start=1):
            yield Frame(kind, seq, b"{}")
        await asyncio.Event().wait()  # who follows from turn to turn is told of no end

    pipe = Pipe(room=9)
    stream = EventStream(
        frames(), draining=asyncio.Event(), places=Places(9), seat=None, instance="/", head=2
    )
    async with asyncio.timeout(3):
        await stream({}, pipe.receive, pipe.send)
    sent = b"".join(m["body"] for m in pipe.sent if m["type"] == "http.response.body")
    assert [line for line in sent.split(b"\n") if line.startswith(b"id:")] == [
        b"id: 1",
        b"id: 2",
        b"id: 3",
    ]
