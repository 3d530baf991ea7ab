"""What a client can do before there is a request: heads that are huge, slow, or never end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from app.api import connection
from app.api.wire import body
from tests.api.conftest import served
from tests.fakes.api_world import World

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
POST = b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@contextlib.asynccontextmanager
async def connected(
    world: World,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with served(world) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        try:
            yield reader, writer
        finally:
            writer.close()


async def pour(writer: asyncio.StreamWriter, piece: bytes, size: int) -> int:
    """Send so much, or what is taken until the connection ends; return how much it was."""
    poured = 0
    with contextlib.suppress(ConnectionError):
        while poured < size:
            writer.write(piece)
            await writer.drain()
            poured += len(piece)
    return poured


@pytest.mark.parametrize(
    ("began", "piece"),
    [(GET + b"x: ", b"a" * 65536), (GET, b"x: a\r\n" * 10_000), (b"GET /?", b"a" * 65536)],
)
async def test_a_head_without_end_is_cut_off(world: World, began: bytes, piece: bytes) -> None:
    async with connected(world) as (_, writer):
        writer.write(began)
        assert await pour(writer, piece, 50_000_000) < 10_000_000


async def test_a_head_that_is_a_little_too_large_is_told(world: World) -> None:
    async with connected(world) as (reader, writer):
        writer.write(GET)
        for _ in range(connection.MOST_HEAD // 1000 + 1):
            writer.write(b"x: " + b"a" * 1000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"huge")


async def test_requests_one_after_the_other_are_not_counted_together(world: World) -> None:
    padded = GET + b"x: " + b"a" * 60_000 + b"\r\n\r\n"
    async with connected(world) as (reader, writer):
        for _ in range(6):
            writer.write(padded)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"}")
        writer.write(padded * 6)
        for _ in range(6):
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"}")


@pytest.mark.parametrize("began", [b"", b"GET /hea", GET, GET + b"\r\n" + GET])
async def test_a_head_that_never_ends_is_waited_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch, began: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    async with connected(world) as (reader, writer):
        writer.write(began)
        async with asyncio.timeout(4):  # below the time that an idle connection is kept
            await reader.read()


async def test_a_body_that_never_ends_is_waited_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "READ_S", 0.2)
    async with connected(world) as (reader, writer):
        writer.write(POST + b"content-length: 100\r\n\r\n{")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"/problems/body-too-slow" in answer
