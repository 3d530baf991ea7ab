"""Claims, sweeps and hand-overs: what they must leave alone, on the fake and on Postgres."""

import pytest

from app.runtime.ports.journal import Release
from app.runtime.ports.workers import Claim
from tests.conformance.conftest import Stores
from tests.making import AT_US, KEYS, append, message, new_session

FAR_US = 4_000_000_000_000_000


async def claimed(stores: Stores, count: int = 1, worker: str = "w1") -> list[Claim]:
    for _ in range(count):
        await stores.sessions.create(new_session(), None)
    await stores.workers.renew(worker, 60)
    claims = await stores.workers.claim(worker, count, count, KEYS)
    assert len(claims) == count
    return sorted(claims, key=lambda c: c.session_id)


async def deliver(stores: Stores, session_id: str) -> None:
    async with stores.sessions.locked("default", session_id) as locked:
        assert locked is not None
        await locked.deliver(message())


async def waking(stores: Stores, claim: Claim) -> bool:
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    return row.waking


async def timer(stores: Stores, claim: Claim) -> int | None:
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    return row.timer_at_us


@pytest.mark.req("STATE-4")
async def test_a_sweep_wakes_nothing_of_a_living_owner(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await claimed(stores, worker="w2")
    assert await stores.workers.sweep() == 0
    assert not await waking(stores, claim)


async def test_a_sweep_finds_the_lost_also_when_nobody_is_left_alive(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await stores.workers.renew("w1", 0)
    assert not await stores.workers.any_alive()
    assert await stores.workers.sweep() == 1
    assert await waking(stores, claim)


async def test_giving_one_session_up_gives_up_no_other(stores: Stores) -> None:
    given, kept = await claimed(stores, 2)
    await stores.workers.give_up("w1", given.session_id, given.epoch, blameless=True)
    assert [o.session_id for o in await stores.workers.owned("w1")] == [kept.session_id]


async def test_a_worker_that_leaves_takes_nobody_with_it(stores: Stores) -> None:
    await claimed(stores)
    (other,) = await claimed(stores, worker="w2")
    await stores.workers.remove("w1")
    assert await stores.workers.any_alive()
    assert not await waking(stores, other)
    assert await stores.workers.sweep() == 0


@pytest.mark.req("SAFE-5")
async def test_what_has_an_owner_is_not_queued_though_it_is_due(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await deliver(stores, claim.session_id)
    assert await waking(stores, claim)
    assert await stores.workers.queued(9) == 0


async def test_a_lost_owner_makes_a_takeover_though_it_had_answered(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await stores.journal.append_batch([append(claim, answered=True)])
    await stores.workers.renew("w1", 0)
    await stores.workers.renew("w2", 60)
    await stores.workers.sweep()
    (again,) = await stores.workers.claim("w2", 1, 1, KEYS)
    assert (again.claims, again.takeover) == (1, True)


async def test_a_timer_that_rang_is_gone_and_one_of_later_stays(stores: Stores) -> None:
    late, due = await claimed(stores, 2)
    releases = [Release(timer_us=FAR_US), Release(timer_us=AT_US)]
    for claim, release in zip((late, due), releases, strict=True):
        await stores.journal.append_batch([append(claim, status="waiting", release=release)])
    await deliver(stores, late.session_id)
    again = {c.session_id: c for c in await stores.workers.claim("w1", 9, 9, KEYS)}
    assert again[late.session_id].rang_us is None
    assert again[due.session_id].rang_us == AT_US
    assert await timer(stores, late) == FAR_US
    assert await timer(stores, due) is None


async def test_of_a_tenant_the_longest_due_is_taken_first(stores: Stores) -> None:
    """Whatever its id: more are due than one claim looks at."""
    claims = await claimed(stores, 7)
    for claim in claims:
        await stores.journal.append_batch([append(claim, release=Release())])
    for claim in reversed(claims):
        await deliver(stores, claim.session_id)
    for claim in reversed(claims):
        (taken,) = await stores.workers.claim("w1", 1, 1, KEYS)
        assert taken.session_id == claim.session_id


async def test_the_timer_that_is_longest_over_rings_first(stores: Stores) -> None:
    claims = await claimed(stores, 7)
    for n, claim in enumerate(claims):
        release = Release(timer_us=AT_US - n)
        await stores.journal.append_batch([append(claim, status="waiting", release=release)])
    for claim in reversed(claims):
        (taken,) = await stores.workers.claim("w1", 1, 1, KEYS)
        assert taken.session_id == claim.session_id


async def test_what_others_own_is_not_in_the_way_of_what_is_due(stores: Stores) -> None:
    """Their messages are for their owners; a claim looks at few rows, and not at these."""
    for claim in await claimed(stores, 7):
        await deliver(stores, claim.session_id)
    new = new_session()
    await stores.sessions.create(new, None)
    await stores.workers.renew("w2", 60)
    assert [c.session_id for c in await stores.workers.claim("w2", 1, 1, KEYS)] == [new.id]


@pytest.mark.req("STATE-4")
async def test_an_append_does_not_forget_that_the_session_was_woken(stores: Stores) -> None:
    """Whoever woke it put nothing into its inbox: only a release says that all was seen."""
    (claim,) = await claimed(stores)
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        await locked.wake()
    await stores.journal.append_batch([append(claim)])
    assert await waking(stores, claim)


async def test_a_session_kept_by_a_message_has_no_timer(stores: Stores) -> None:
    """A timer belongs to the state in which a session comes to rest, and this one goes on."""
    (claim,) = await claimed(stores)
    await deliver(stores, claim.session_id)
    entry = append(claim, status="waiting", release=Release(timer_us=FAR_US), seen=0)
    await stores.journal.append_batch([entry])
    assert await timer(stores, claim) is None


async def test_a_new_view_takes_the_place_of_the_old_one(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await stores.journal.append_batch([append(claim, view=b"old")])
    await stores.journal.append_batch([append(claim, head=3, view=b"new")])
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    assert row.view == b"new"


async def test_a_timer_counts_by_the_clock_of_the_store(stores: Stores) -> None:
    """However far behind the clock of the worker is that set it."""
    (claim,) = await claimed(stores)
    release = Release(timer_us=AT_US + 60_000_000, now_us=AT_US)
    await stores.journal.append_batch([append(claim, status="waiting", release=release)])
    assert await stores.workers.claim("w1", 1, 1, KEYS) == []
    set_at = await timer(stores, claim)
    assert set_at is not None
    assert set_at > AT_US + 3_600_000_000


async def test_who_has_ended_is_not_at_rest_while_somebody_owns_it_or_it_is_due(
    stores: Stores,
) -> None:
    """A reader that follows to the end must wait for what may still be written."""
    (claim,) = await claimed(stores)

    async def idle() -> bool:
        return (await stores.journal.heads([claim.session_id]))[claim.session_id].idle

    await stores.journal.append_batch([append(claim, status="completed")])
    assert not await idle()
    entry = append(claim, head=3, events=0, status="completed", release=Release())
    await stores.journal.append_batch([entry])
    assert await idle()
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        await locked.wake()
    assert not await idle()


async def test_waking_one_session_wakes_no_other(stores: Stores) -> None:
    woken, other = await claimed(stores, 2)
    async with stores.sessions.locked("default", woken.session_id) as locked:
        assert locked is not None
        await locked.wake()
    assert await waking(stores, woken)
    assert not await waking(stores, other)
