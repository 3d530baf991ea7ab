"""A journal read back outside the worker that writes it: opened, in slices, up to a bound."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Final

from app.core.events import Event
from app.runtime.ports import Clock, Codec, JournalStore, SessionCipher
from app.runtime.sealing import Sealer

PAGE: Final = 256
PAGE_BYTES: Final = 4 * 1024 * 1024
SLICE: Final = 32
"""Events opened before others get a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Reads journals. One for the whole process."""

    clock: Clock
    codec: Codec
    journal: JournalStore

    async def events(
        self,
        session_id: str,
        cipher: SessionCipher,
        *,
        until: int | None = None,
        types: Collection[str] | None = None,
    ) -> AsyncIterator[Event]:
        """Yield a session's events in order, up to a sequence number, of these types."""
        sealer = Sealer(self.codec, cipher)
        after, opened = 0, 0
        while True:
            page = await self.journal.read(session_id, after, PAGE, PAGE_BYTES)
            for sealed in page:
                if until is not None and sealed.seq > until:
                    return
                if types is None or sealed.type in types:
                    opened += 1
                    yield sealer.open(sealed)
                    if opened % SLICE == 0:
                        await self.clock.sleep(0)
            if len(page) < PAGE and sum(len(sealed.payload) for sealed in page) < PAGE_BYTES:
                return
            after = page[-1].seq
