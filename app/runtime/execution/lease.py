"""What this process knows of its own lease: the fence at our own door."""

import asyncio
from dataclasses import dataclass
from typing import Final

from app.runtime.ports.process import Clock

FRESH_SHARE: Final = 2


class Lease:
    """The process's lease as last confirmed, on a clock that also runs while we are stopped."""

    def __init__(self, *, clock: Clock, lease_s: float) -> None:
        """Start unconfirmed."""
        self._clock = clock
        self.lease_s = lease_s
        self.term = 0
        self._confirmed_s: float | None = None
        self._confirmed = asyncio.Event()

    @property
    def lease_us(self) -> int:
        """Return the lease's length in microseconds."""
        return int(self.lease_s * 1_000_000)

    def confirm(self, asked_s: float) -> None:
        """Note a renewal that Postgres confirmed; it counts from when it was asked for.

        When the one before may have run out in between, a new term begins: what was claimed in
        the old one may belong to somebody else now.
        """
        before = self._confirmed_s
        if before is None or self._clock.boot_s() - before >= self.lease_s:
            self.term += 1
        self._confirmed_s = asked_s
        self._confirmed.set()

    def fresh(self) -> bool:
        """Return whether an effect may be sent now: the last renewal is younger than lease / 2."""
        if self._confirmed_s is None:
            return False
        return self._clock.boot_s() - self._confirmed_s < self.lease_s / FRESH_SHARE

    async def until_fresh(self) -> None:
        """Return once an effect may be sent."""
        while not self.fresh():
            self._confirmed.clear()
            await self._confirmed.wait()

    def hold(self) -> "Hold":
        """Return the hold on the lease under which sessions are about to be claimed."""
        return Hold(self, self.term)


@dataclass(frozen=True, slots=True)
class Hold:
    """The lease as it was when a session was known to be ours; renewing an old one is no help."""

    lease: Lease
    term: int

    def fresh(self) -> bool:
        """Return whether an effect of the session may be sent now."""
        return self.lease.term == self.term and self.lease.fresh()
