"""Reading the body of an answer, by its content type, within a bound."""

import asyncio
import contextlib
import json
from typing import Final

import aiohttp
import msgspec

from app.core.canonical import Json
from app.providers.assemble import Assembler
from app.providers.failures import unavailable
from app.providers.sse import EventReader
from app.runtime.errors import ModelFailure

MOST_BYTES: Final = 8 * 1024 * 1024
_DONE: Final = b"[DONE]"
_REST_S: Final = 2.0
_MOST_REST: Final = 64 * 1024
_LIKE_EVENTS: Final = (b"data:", b"event:", b":")

_decode = msgspec.json.Decoder().decode


async def read_answer(response: aiohttp.ClientResponse, assembler: Assembler) -> None:
    """Feed a whole answer to the assembler."""
    if "event-stream" in response.headers.get("Content-Type", ""):
        await _read_stream(response.content, assembler)
        return
    body = (await limited(response, MOST_BYTES)).lstrip()
    if body.startswith(_LIKE_EVENTS):
        reader = EventReader()
        _take(assembler, reader.feed(body))
        _take(assembler, reader.close())
    else:
        assembler.take_whole(parsed(body))


async def limited(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the whole body, refusing one that is longer than this."""
    parts: list[bytes] = []
    size = 0
    while data := await response.content.readany():
        size += len(data)
        if size > most:
            raise unavailable(f"The model endpoint sent more than {most} bytes.")
        parts.append(data)
    return b"".join(parts)


def parsed(text: bytes) -> Json:
    """Return JSON, also with lone surrogates or broken UTF-8 in it, which strict readers refuse."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        lenient: Json = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise unavailable("The model endpoint sent something that is not JSON.") from None
    return lenient


async def _read_stream(content: aiohttp.StreamReader, assembler: Assembler) -> None:
    reader = EventReader()
    size = 0
    while not assembler.finished:
        data = await content.readany()
        if not data:
            _take(assembler, reader.close())
            return
        size += len(data)
        if size > MOST_BYTES:
            raise unavailable(f"The model endpoint sent more than {MOST_BYTES} bytes.")
        _take(assembler, reader.feed(data))
    if not content.at_eof():
        await _read_rest(content, reader, assembler)


async def _read_rest(
    content: aiohttp.StreamReader, reader: EventReader, assembler: Assembler
) -> None:
    """Read what follows a finished answer (usage, the end), which is not worth losing it for."""
    size = 0
    try:
        async with asyncio.timeout(_REST_S):
            while size <= _MOST_REST and (data := await content.readany()):
                size += len(data)
                _take(assembler, reader.feed(data))
    except (TimeoutError, aiohttp.ClientError):
        pass


def _take(assembler: Assembler, events: list[bytes]) -> None:
    for event in events:
        if event == _DONE:
            assembler.end()
        elif not assembler.finished:
            assembler.take_chunk(parsed(event))
        else:
            with contextlib.suppress(ModelFailure):  # the answer is whole; see `_read_rest`
                assembler.take_chunk(parsed(event))
