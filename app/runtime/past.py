"""Journals read back outside the worker that writes them: in bounded pages, up to a head."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Final

from app.core.events import Event
from app.runtime.ports.journal import JournalStore, SealedEvent
from app.runtime.ports.keys import Codec, SessionCipher
from app.runtime.ports.process import Clock
from app.runtime.sealing import Sealer

PAGE: Final = 512
PAGE_BYTES: Final = 4 * 1024 * 1024
SLICE: Final = 32
"""Events opened before others get a turn."""


async def pages(
    journal: JournalStore, session_id: str, head: int, after: int = 0
) -> AsyncIterator[list[SealedEvent]]:
    """Yield a journal up to its head, a bounded page at a time."""
    while after < head:
        read = await journal.read(session_id, after, min(PAGE, head - after), PAGE_BYTES)
        if not read:
            return
        yield read
        after = read[-1].seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Reads events of journals. One for the whole process."""

    clock: Clock
    codec: Codec
    journal: JournalStore

    async def events(
        self,
        session_id: str,
        cipher: SessionCipher,
        head: int,
        types: Collection[str] | None = None,
    ) -> AsyncIterator[Event]:
        """Yield a session's events in order, up to a sequence number, of these types."""
        sealer, opened = Sealer(self.codec, cipher), 0
        async for page in pages(self.journal, session_id, head):
            for sealed in page:
                if types is None or sealed.type in types:
                    opened += 1
                    yield sealer.open(sealed)
                    if opened % SLICE == 0:
                        await self.clock.sleep(0)
