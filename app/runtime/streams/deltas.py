"""Token deltas on their way to live readers: gathered, sealed, never durable."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Final

from app.core.effects import CallModel
from app.core.state import State
from app.runtime.ports.keys import SessionCipher
from app.runtime.ports.live import Hub, LiveEvent
from app.runtime.sealing import DELTA_CONTEXT

GATHER_S: Final = 0.05
Spawn = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]


class DeltaStream:
    """Gathers the text of one attempt for up to 50 ms and passes it on while somebody listens."""

    def __init__(
        self, *, hub: Hub, cipher: SessionCipher, state: State, effect: CallModel, spawn: Spawn
    ) -> None:
        """Start with nothing gathered; `spawn` starts a task in the session's own group."""
        self._hub = hub
        self._cipher = cipher
        self._session_id = state.session_id
        self._place = {"step": state.step, "attempt": effect.attempt}
        self._spawn = spawn
        self._texts: list[str] = []
        self._n = 0
        self._due: asyncio.TimerHandle | None = None
        self._ready: list[LiveEvent] = []
        self._publisher: asyncio.Task[None] | None = None

    def __call__(self, text: str) -> None:
        """Take a piece of text."""
        if not self._hub.followed(self._session_id):
            return
        self._texts.append(text)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(GATHER_S, self._send)

    def _send(self) -> None:
        self._gather()
        if self._ready and self._publisher is None:
            self._publisher = self._spawn(self._publish())

    def _gather(self) -> None:
        self._due = None
        if not self._texts:
            return
        self._n += 1
        data = {"text": "".join(self._texts), **self._place, "n": self._n}
        self._texts.clear()
        plain = json.dumps(data, ensure_ascii=False).encode()
        sealed = self._cipher.seal(plain, DELTA_CONTEXT)
        self._ready.append(LiveEvent(self._session_id, None, sealed, "delta"))

    async def _publish(self) -> None:
        while self._ready:
            ready, self._ready = self._ready, []
            await self._hub.publish(ready)
        self._publisher = None

    async def flush(self) -> None:
        """Publish the rest: before the answer itself is appended."""
        if self._due is not None:
            self._due.cancel()
        self._gather()
        if self._publisher is not None:
            await self._publisher
        await self._publish()

    def stop(self) -> None:
        """Forget what is gathered: the attempt was cancelled."""
        if self._due is not None:
            self._due.cancel()
        self._texts.clear()
