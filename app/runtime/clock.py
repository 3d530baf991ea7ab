"""The only source of time, chance and ids in the process."""

import asyncio
import os
import random
import time
from typing import Final

_CHANCE: Final = random.SystemRandom()


class SystemClock:
    """The machine's own clock. `boot_s` goes on while the process is stopped or suspended."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""
        return time.time_ns() // 1000

    def boot_s(self) -> float:
        """Return seconds since boot, time in suspension included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return _CHANCE.random()

    async def sleep(self, seconds: float) -> None:
        """Return after this long."""
        await asyncio.sleep(seconds)
