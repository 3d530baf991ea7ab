"""The trace as Server-Sent Events, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.api.conftest import create, served
from tests.api.sse_client import Reader, reading
from tests.fakes.api_world import World
from tests.waiting import until

Base = tuple[str, World]


@pytest.fixture
async def base(world: World) -> AsyncIterator[Base]:
    async with served(world) as (url, _):
        yield url, world


async def _session(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await create(client)


def _stream(url: str, session_id: str, query: str = "") -> str:
    return f"{url}/v1/sessions/{session_id}/stream{query}"


async def _seqs(reader: Reader) -> list[str | None]:
    return [message.id for message in await reader.events()]


@pytest.mark.req("API-3")
async def test_a_reader_sees_the_whole_turn(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    async with reading(_stream(url, session_id)) as reader:
        assert reader.response.status_code == 200
        assert reader.response.headers["content-type"].startswith("text/event-stream")
        assert reader.response.headers["x-accel-buffering"] == "no"
        assert "no-cache" in reader.response.headers["cache-control"]
        await until(lambda: world.hub.followed(session_id))
        await world.work(session_id, 2)
        await world.delta(session_id, "Hel")
        await world.finish(session_id)
        messages = await reader.all()
    assert messages[0].retry == 2000
    events = [m for m in messages if m.event]
    assert [m.event for m in events] == [
        "session.created",
        "turn.started",
        "phase.entered",
        "phase.entered",
        "delta",
        "turn.ended",
    ]
    assert [m.id for m in events] == ["1", "2", "3", "4", None, "5"]
    assert events[4].data == {"text": "Hel"}
    stored = [json.loads(e.payload.partition(b"|")[2]) for e in world.store.events[session_id]]
    assert [m.data for m in events if m.id] == stored


@pytest.mark.req("API-3")
async def test_ready_frames_go_out_in_one_chunk(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    await world.work(session_id, 20)
    await world.finish(session_id)
    async with reading(_stream(url, session_id)) as reader:
        assert len(await reader.events()) == 23
        assert len(reader.chunks) <= 2


@pytest.mark.req("API-3")
@pytest.mark.case("C061")
async def test_a_reader_goes_on_where_it_was(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    await world.work(session_id, 3)
    await world.finish(session_id)
    stream = _stream(url, session_id, "?after=1")
    async with reading(stream) as reader:
        assert await _seqs(reader) == ["2", "3", "4", "5", "6"]
    async with reading(stream, headers={"Last-Event-ID": "4"}) as reader:
        assert await _seqs(reader) == ["5", "6"]


@pytest.mark.req("API-3")
@pytest.mark.case("C059")
@pytest.mark.parametrize(
    ("last", "status", "first"),
    [
        ("-1", 200, "1"),
        ("2", 200, "3"),
        ("abc", 200, "1"),
        ("4", 204, None),
        ("999", 204, None),
        ("9" * 40, 204, None),
        ("", 200, "1"),
    ],
)
async def test_rejoining_a_finished_turn(
    base: Base, last: str, status: int, first: str | None
) -> None:
    url, world = base
    session_id = await _session(url)
    await world.work(session_id)
    await world.finish(session_id)
    async with (
        asyncio.timeout(2),
        reading(_stream(url, session_id), headers={"Last-Event-ID": last}) as reader,
    ):
        assert reader.response.status_code == status
        messages = await reader.events()
    if first is not None:
        assert (messages[0].id, messages[-1].event) == (first, "turn.ended")


@pytest.mark.req("API-3", "API-12")
@pytest.mark.parametrize("after", ["-1", "abc", "1.5", "", "٣"])
async def test_an_invalid_after_is_refused(base: Base, after: str) -> None:
    url, _ = base
    session_id = await _session(url)
    async with httpx2.AsyncClient() as client:
        answer = await client.get(_stream(url, session_id), params={"after": after})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/query/after"


@pytest.mark.case("C062")
async def test_signs_of_life_are_comments() -> None:
    world = World(ping_s=0.05)
    async with world.running(), served(world) as (url, _):
        session_id = await _session(url)
        async with asyncio.timeout(20), reading(_stream(url, session_id)) as reader:
            seen = []
            async for message in reader.messages():
                seen.append(message)
                if message.comment == "ping" and not world.states[session_id].ended:
                    await world.finish(session_id)
    pings = [m for m in seen if m.comment == "ping"]
    assert pings
    assert all(m.id is None and not m.event for m in pings)


@pytest.mark.case("C063")
async def test_a_stream_that_cannot_begin_is_a_problem(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    unknown = _stream(url, "ses_00000000000000000000000000")
    async with httpx2.AsyncClient() as client:
        missing = await client.get(unknown)
        world.store.journal_down = True
        away = await client.get(_stream(url, session_id))
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/session-not-found")
    assert (away.status_code, away.json()["type"]) == (503, "/problems/store-unavailable")
    assert away.headers["retry-after"]


@pytest.mark.case("C063")
async def test_a_stream_that_breaks_says_so(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    async with asyncio.timeout(20), reading(_stream(url, session_id)) as reader:
        await until(lambda: world.hub.followed(session_id))
        messages = reader.messages()
        while (await anext(messages)).event != "turn.started":
            pass
        world.store.down = True
        world.hub.lossy = True
        await world.finish(session_id)
        for mailbox in list(world.follower._readers[session_id]):  # noqa: SLF001
            mailbox.put(None)
        last = [message async for message in messages][-1]
    assert (last.event, last.id) == ("error", None)
    assert isinstance(last.data, dict)
    assert last.data["type"] == "/problems/store-unavailable"


@pytest.mark.case("C063")
async def test_a_bug_in_a_stream_says_so_and_is_logged(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    event = world.store.events[session_id][1]
    async with reading(_stream(url, session_id)) as reader:
        await until(lambda: world.hub.followed(session_id))
        object.__setattr__(event, "payload", b"broken")
        for mailbox in list(world.follower._readers[session_id]):  # noqa: SLF001
            mailbox.put(None)
        await world.work(session_id)
        object.__setattr__(world.store.events[session_id][2], "payload", b"broken")
        last = (await reader.all())[-1]
    assert last.event == "error"
    assert isinstance(last.data, dict)
    assert last.data["type"] == "/problems/internal-error"
    assert [name for name, _ in world.observer.lines if name == "http.failed"]


@pytest.mark.req("API-8")
@pytest.mark.case("C055")
async def test_a_reader_that_leaves_ends_nothing_but_its_stream(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    async with reading(_stream(url, session_id)) as reader:
        async for message in reader.messages():
            if message.event == "turn.started":
                break
    await until(lambda: not world.hub.followed(session_id), what="the reader is let go")
    assert not world.follower._readers  # noqa: SLF001
    assert world.store.inboxes[session_id] == []
    await world.finish(session_id)
    async with reading(_stream(url, session_id)) as reader:
        assert (await reader.events())[-1].event == "turn.ended"


@pytest.mark.req("API-3")
async def test_follow_the_session_from_turn_to_turn(base: Base) -> None:
    url, world = base
    session_id = await _session(url)
    await world.finish(session_id)
    async with reading(_stream(url, session_id, "?follow=session&after=2")) as reader:
        await until(lambda: world.hub.followed(session_id))
        await world.close(session_id)
        events = await reader.events()
    assert [m.event for m in events] == ["turn.ended", "session.closed"]
    async with reading(_stream(url, session_id, "?follow=session&after=4")) as reader:
        assert reader.response.status_code == 204


@pytest.mark.req("API-1", "API-3")
async def test_a_post_can_answer_with_the_stream(base: Base) -> None:
    url, world = base
    headers = {"Accept": "text/event-stream"}
    body = {"task": "hi"}
    async with reading(f"{url}/v1/sessions", headers=headers, method="POST", body=body) as reader:
        session_id = reader.response.headers["location"].rpartition("/")[2]
        await world.finish(session_id)
        events = await reader.events()
    assert [m.event for m in events] == ["session.created", "turn.started", "turn.ended"]


@pytest.mark.case("C076")
@pytest.mark.req("OPS-4")
async def test_open_streams_do_not_block_the_end(world: World) -> None:
    async with served(world) as (url, server), httpx2.AsyncClient(timeout=20) as client:
        session_id = await _session(url)

        async def read() -> list[str]:
            async with client.stream("GET", _stream(url, session_id)) as response:
                text = "".join([part async for part in response.aiter_text()])
            return [line for line in text.split("\n") if line.startswith("id: ")]

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            readers = [group.create_task(read()) for _ in range(20)]
            await until(lambda: len(world.hub.queues.get(session_id, [])) == 20)
            world.draining.set()
            server.should_exit = True
        assert [r.result() for r in readers] == [["id: 1", "id: 2"]] * 20
    assert not world.hub.followed(session_id)


@pytest.mark.case("C082")
async def test_a_stalled_reader_holds_little_and_slows_nobody(world: World) -> None:
    async with served(world) as (url, _):
        session_id = await _session(url)
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET /v1/sessions/{session_id}/stream HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await writer.drain()
        await until(lambda: world.hub.followed(session_id))
        text = "x" * 50_000
        async with asyncio.timeout(20):
            async with reading(_stream(url, session_id)) as other:
                await until(lambda: len(world.hub.queues[session_id]) == 2)
                for _ in range(400):
                    await world.delta(session_id, text)
                    await asyncio.sleep(0)
                await world.finish(session_id)
                assert (await other.events())[-1].event == "turn.ended"
        writer.close()
        del reader
