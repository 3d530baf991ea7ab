"""Small ports: a clock a process, keys that hide nothing but link, an observer that is checked."""

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.events import Event
from app.core.state import State
from app.runtime.errors import Erased, Tampered
from app.runtime.ports.keys import SessionCipher, WrappedKey
from tests.fakes.clock import EPOCH_US
from tests.simulation.loop import SeededLoop

KEY = "k1"


@dataclass
class SimClock:
    """A `Clock` on the loop's time; the wall clocks of two machines differ by their `skew_s`."""

    loop: SeededLoop
    chance: random.Random
    skew_s: float = 0.0

    def now_us(self) -> int:
        return EPOCH_US + round((self.loop.time() + self.skew_s) * 1_000_000)

    def boot_s(self) -> float:
        return self.loop.time()

    def entropy(self, size: int) -> bytes:
        return self.chance.randbytes(size)

    def jitter(self) -> float:
        return self.chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class LinkedCipher:
    """Bytes that open only in their own session and context, and a chain that is a chain."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id.encode()

    def seal(self, plain: bytes, context: bytes) -> bytes:
        return b"%b|%b|%b" % (self._session, context, plain)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        head = b"%b|%b|" % (self._session, context)
        if not sealed.startswith(head):
            raise Tampered("from another place")
        return sealed[len(head) :]

    def link(self, event_seq: int, v: int, payload: bytes, previous: bytes) -> bytes:
        told = b"%b %d %d %b %b" % (self._session, event_seq, v, previous, payload)
        return hashlib.blake2b(told, digest_size=16).digest()


class PlainKeyring:
    """A `Keyring` without keys."""

    ids = (KEY,)

    def create(self, session_id: str) -> tuple[WrappedKey, SessionCipher]:
        return WrappedKey(KEY, session_id.encode()), LinkedCipher(session_id)

    def unwrap(self, session_id: str, key: WrappedKey) -> SessionCipher:
        if not key.wrapped:
            raise Erased(session_id)
        return LinkedCipher(session_id)

    def seal_record(self, plain: bytes) -> bytes:
        return plain

    def open_record(self, sealed: bytes) -> bytes:
        return sealed

    def digest_record(self, plain: bytes) -> bytes:
        return plain

    def is_digest(self, digest: bytes, plain: bytes) -> bool:
        return digest == plain


class Watched:
    """What an observer tells of: implemented by the audit."""

    def observed(self, worker: str, events: Sequence[Event], after: State) -> None:
        raise NotImplementedError

    def logged(self, worker: str, event: str, fields: dict[str, object]) -> None:
        raise NotImplementedError


@dataclass
class SimObserver:
    """An `Observer` of one worker."""

    worker: str
    watched: Watched

    def committed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        del before
        self.watched.observed(self.worker, events, after)

    def replayed(self, before: State | None, events: Sequence[Event], after: State) -> None:
        del before
        self.watched.observed(self.worker, events, after)

    def traceparent(self, state: State, effect_key: str) -> str:
        return f"{state.session_id}|{effect_key}"

    def log(self, event: str, **fields: object) -> None:
        self.watched.logged(self.worker, event, fields)
