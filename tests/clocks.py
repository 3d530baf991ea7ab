"""The real clock, for tests that talk to real servers."""

import asyncio
import os
import random
import time


class RealClock:
    """A `Clock` that really passes, at a rate: 20 means that a second takes 50 milliseconds."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def boot_s(self) -> float:
        return time.monotonic() * self._rate

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def jitter(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)
