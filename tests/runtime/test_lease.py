"""The fence at our own door: what a renewal proves, and what it cannot prove any more."""

import pytest

from app.runtime.execution.lease import Lease
from tests.fakes.clock import LoopClock

LEASE_S = 4.0


def _lease() -> tuple[Lease, LoopClock]:
    clock = LoopClock()
    lease = Lease(clock=clock, lease_s=LEASE_S)
    lease.confirm(clock.boot_s())
    return lease, clock


async def test_a_hold_is_fresh_while_the_lease_is_renewed_in_time() -> None:
    lease, clock = _lease()
    hold = lease.hold()
    clock.stop(LEASE_S / 2 - 0.1)
    assert hold.fresh()
    clock.stop(0.1)
    assert not hold.fresh()
    lease.confirm(clock.boot_s())
    assert hold.fresh()


@pytest.mark.case("C069")
@pytest.mark.req("STATE-4")
async def test_a_lease_that_ran_out_and_was_renewed_is_another_one() -> None:
    """What was claimed before may have a new owner, however fresh the lease looks now."""
    lease, clock = _lease()
    hold = lease.hold()
    clock.stop(LEASE_S)
    lease.confirm(clock.boot_s())
    assert lease.fresh()
    assert not hold.fresh()
    assert lease.hold().fresh()


async def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    lease, clock = _lease()
    hold = lease.hold()
    asked = clock.boot_s()
    clock.stop(LEASE_S)
    lease.confirm(asked)
    assert not lease.fresh()
    assert not hold.fresh()


async def test_a_lease_that_was_never_confirmed_allows_nothing() -> None:
    lease = Lease(clock=LoopClock(), lease_s=LEASE_S)
    assert not lease.fresh()
    assert not lease.hold().fresh()
    assert lease.lease_us == 4_000_000


async def test_a_hold_stays_fresh_however_long_the_process_has_been_running() -> None:
    lease, clock = _lease()
    clock.stop(1_000)
    lease.confirm(clock.boot_s())
    hold = lease.hold()
    for _ in range(3):
        clock.stop(LEASE_S / 2)
        lease.confirm(clock.boot_s())
    assert hold.fresh()
