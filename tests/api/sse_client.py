"""Reads Server-Sent Events as a browser does, without its tolerance."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2


@dataclass
class Message:
    """One message: `retry`, a comment, or an event."""

    event: str = ""
    id: str | None = None
    data: object = None
    comment: str | None = None
    retry: int | None = None


@dataclass
class Reader:
    """An open stream."""

    response: httpx2.Response
    chunks: list[bytes] = field(default_factory=list)

    async def messages(self) -> AsyncIterator[Message]:
        rest = b""
        async for chunk in self.response.aiter_raw():
            self.chunks.append(chunk)
            rest += chunk
            *whole, rest = rest.split(b"\n\n")
            for text in whole:
                yield _read(text.decode())
        assert rest == b""

    async def all(self) -> list[Message]:
        return [message async for message in self.messages()]

    async def events(self) -> list[Message]:
        return [message for message in await self.all() if message.event]


def _read(text: str) -> Message:
    message = Message()
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        if line.startswith(":"):
            message.comment = line[1:].strip()
        elif name == "data":
            assert message.data is None, "one line of data"
            message.data = json.loads(value)
        elif name == "id":
            message.id = value
        elif name == "event":
            message.event = value
        elif name == "retry":
            message.retry = int(value)
        else:
            raise AssertionError(line)
    return message


@asynccontextmanager
async def reading(
    url: str, *, headers: dict[str, str] | None = None, method: str = "GET", body: object = None
) -> AsyncIterator[Reader]:
    async with (
        httpx2.AsyncClient(timeout=20) as client,
        client.stream(method, url, headers=headers or {}, json=body) as response,
    ):
        yield Reader(response)
