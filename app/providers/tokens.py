"""The `Tokens` port: counting with the model's own tokenizer, offline, without holding the loop."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

from app.providers.encodings import Encodings

INLINE_CHARS: Final = 20_000
"""Up to this length counting takes under 5 ms even for the worst text, and stays on the loop."""
CHUNK_CHARS: Final = 16_384
_LOOK_BACK: Final = 256
_REMEMBERED: Final = 512
_THREADS: Final = 2


class TokenCounter:
    """Counts tokens; special tokens such as `<|endoftext|>` count as the text they are.

    A text above `INLINE_CHARS` is counted in a thread of its own pool and in chunks, so that a long
    run without spaces costs no more than its length. Chunks end at white space where there is some;
    elsewhere a count may be a token or two a chunk too high, which only reserves a little more.
    """

    def __init__(self, encodings: Encodings | None = None) -> None:
        self._encodings = encodings or Encodings()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokens")
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._count)

    async def warm(self, names: Iterable[str]) -> None:
        """Load encodings ahead of their first use."""
        loop = asyncio.get_running_loop()
        for name in names:
            await loop.run_in_executor(self._threads, self._encodings.load, name)

    async def count(self, text: str, encoding: str) -> int:
        """Return the number of tokens of a text."""
        if self._encodings.loaded(encoding) is not None and len(text) <= INLINE_CHARS:
            return self._remembered(text, encoding)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._count, text, encoding)

    def close(self) -> None:
        """End the threads; what is being counted is finished first."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, text: str, encoding: str) -> int:
        encode = self._encodings.load(encoding).encode_ordinary
        if len(text) <= INLINE_CHARS:
            return len(encode(text))
        return sum(len(encode(chunk)) for chunk in _chunks(text))


def _chunks(text: str) -> Iterator[str]:
    """Cut a text before white space, or anywhere when there is none near the end of a chunk."""
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARS
        if end < len(text):
            near = end - _LOOK_BACK
            space = max(text.rfind(" ", near, end), text.rfind("\n", near, end))
            end = space if space > start else end
        yield text[start:end]
        start = end
