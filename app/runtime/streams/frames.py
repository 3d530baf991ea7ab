"""Frames: what a reader of a trace gets, opened once for all readers of this process.

A reader who stalls holds what was opened for him. Were it his own copy, two hundred of them would
hold a large answer two hundred times; so whoever comes to the same event gets the same bytes.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.live import LiveEvent
from app.runtime.sealing import DELTA_CONTEXT, event_context

KEPT_BYTES: Final = 2 * 1024 * 1024
"""What is kept for readers to come; what a reader still holds is found beyond that."""

FRAME_BYTES: Final = 560
"""What a frame takes beside its payload (measured): itself, its key, and its places in two tables.

Most events are shorter than that: without it the kept ones would take three times what they may.
"""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Frame:
    """One thing for a reader: a durable event (`seq`), a delta, or a sign of life (`type` empty).

    `payload` is the wire event's JSON as it was written, or a delta's data.
    """

    type: str
    seq: int | None = None
    payload: bytes = b""


PING: Final = Frame("")


class Opened:
    """The durable frames that were opened last, and all that somebody holds."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        """Start empty."""
        self._most = most_bytes
        self._size = 0
        self._held: WeakValueDictionary[tuple[str, int], Frame] = WeakValueDictionary()
        self._last: OrderedDict[tuple[str, int], Frame] = OrderedDict()

    def frame(
        self, session_id: str, item: SealedEvent | LiveEvent, cipher: SessionCipher | None
    ) -> Frame:
        """Return an event or a delta as a frame; without a cipher it has no payload."""
        kind = "delta" if item.seq is None else item.type
        if cipher is None:
            return Frame(kind, item.seq)
        if item.seq is None:
            return Frame(kind, None, cipher.open(item.payload, DELTA_CONTEXT))
        key = session_id, item.seq
        found = self._held.get(key)
        if found is None:
            found = Frame(kind, item.seq, cipher.open(item.payload, event_context(item.seq)))
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, int], frame: Frame) -> None:
        self._held[key] = self._last[key] = frame
        self._size += len(frame.payload) + FRAME_BYTES
        while self._size > self._most:
            self._size -= len(self._last.popitem(last=False)[1].payload) + FRAME_BYTES
