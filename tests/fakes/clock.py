"""A clock on the loop's own time, with chance from a seed."""

import asyncio
import random

EPOCH_US = 1_800_000_000_000_000


class LoopClock:
    """A `Clock`; `stop` imitates a process that was stopped (SIGSTOP) for a while."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._stopped_s = 0.0

    def now_us(self) -> int:
        return EPOCH_US + round(self.boot_s() * 1_000_000)

    def boot_s(self) -> float:
        return asyncio.get_running_loop().time() + self._stopped_s

    def entropy(self, size: int) -> bytes:
        return self._chance.randbytes(size)

    def jitter(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def stop(self, seconds: float) -> None:
        """Let this much time pass at once, in which nothing here ran."""
        self._stopped_s += seconds
