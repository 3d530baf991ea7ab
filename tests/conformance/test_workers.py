"""The worker port, on the fake and on Postgres."""

import asyncio
from collections import Counter

import pytest

from app.runtime.ports.journal import Fate, Release
from app.runtime.ports.sessions import Delivery, InboxKind, SessionRow
from app.runtime.ports.workers import Claim, Owned
from tests.conformance.conftest import Stores
from tests.making import AT_US, KEYS, append, message, new_session


async def make(stores: Stores, count: int = 1, tenant: str = "default") -> None:
    for _ in range(count):
        await stores.sessions.create(new_session(tenant), None)


async def claim_one(stores: Stores, worker: str = "w1") -> Claim:
    await stores.workers.renew(worker, 60)
    (claim,) = await stores.workers.claim(worker, 1, 1, KEYS)
    return claim


async def test_a_claim_takes_what_is_due_once(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    assert (claim.epoch, claim.claims, claim.head, claim.takeover) == (1, 1, 2, False)
    assert (claim.head_hash, claim.inbox_head, claim.inbox_seen) == (b"h2", 0, 0)
    assert await stores.workers.claim("w1", 9, 9, KEYS) == []
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    assert (row.owner, row.owner_alive, row.waking, row.status) == ("w1", True, False, "running")


async def test_a_worker_without_a_lease_gets_nothing(stores: Stores) -> None:
    await make(stores)
    assert await stores.workers.claim("w1", 1, 1, KEYS) == []
    await stores.workers.renew("w1", 0)
    assert await stores.workers.claim("w1", 1, 1, KEYS) == []
    assert not await stores.workers.any_alive()
    await stores.workers.renew("w1", 60)
    assert await stores.workers.any_alive()
    assert len(await stores.workers.claim("w1", 1, 1, KEYS)) == 1


async def test_a_claim_never_succeeds_against_a_living_owner(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        await locked.deliver(message())
    await stores.workers.renew("w2", 60)
    assert await stores.workers.sweep() == 0
    assert await stores.workers.claim("w2", 9, 9, KEYS) == []


@pytest.mark.req("STATE-4")
@pytest.mark.case("C064", "C069")
async def test_a_lost_owner_is_replaced_and_fenced_off(stores: Stores) -> None:
    await make(stores)
    old = await claim_one(stores)
    await stores.workers.renew("w1", 0)
    await stores.workers.renew("w2", 60)
    assert await stores.workers.claim("w2", 9, 9, KEYS) == [], "nothing says yet that it is due"
    assert await stores.workers.sweep() == 1
    assert await stores.workers.sweep() == 0
    (claim,) = await stores.workers.claim("w2", 9, 9, KEYS)
    assert (claim.epoch, claim.claims, claim.takeover) == (2, 2, True)
    assert (await stores.journal.append_batch([append(old)]))[0].fate is Fate.FENCED
    assert (await stores.journal.append_batch([append(claim)]))[0].fate is Fate.WRITTEN


async def test_only_an_answer_zeroes_the_claims(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    await stores.journal.append_batch([append(claim)])
    await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=False)
    claim = await claim_one(stores)
    assert (claim.claims, claim.takeover) == (2, True)
    await stores.journal.append_batch([append(claim, answered=True)])
    await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=False)
    claim = await claim_one(stores)
    assert (claim.claims, claim.takeover) == (1, False)


async def test_a_claim_that_was_handed_over_does_not_count(stores: Stores) -> None:
    await make(stores)
    for _ in range(3):
        claim = await claim_one(stores)
        assert claim.claims == 1
        await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=True)
    claim = await claim_one(stores)
    await stores.journal.append_batch([append(claim, answered=True)])
    await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=True)
    assert (await claim_one(stores)).claims == 1, "never below none"


async def test_sessions_under_other_keys_are_left_to_those_who_have_them(stores: Stores) -> None:
    await make(stores)
    await stores.workers.renew("w1", 60)
    assert await stores.workers.claim("w1", 9, 9, ("new", "other")) == []
    assert await stores.workers.claim("w1", 9, 9, ()) == []
    (claim,) = await stores.workers.claim("w1", 9, 9, ("new", *KEYS))
    await stores.journal.append_batch([append(claim, release=Release(1))])
    assert await stores.workers.claim("w1", 9, 9, ("new",)) == [], "nor by a timer"
    assert len(await stores.workers.claim("w1", 9, 9, KEYS)) == 1


async def test_giving_up_takes_the_right_owner_and_epoch(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    await stores.workers.give_up("w2", claim.session_id, claim.epoch, blameless=False)
    await stores.workers.give_up("w1", claim.session_id, claim.epoch - 1, blameless=False)
    assert await stores.workers.claim("w1", 9, 9, KEYS) == []
    await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=False)
    assert len(await stores.workers.claim("w1", 9, 9, KEYS)) == 1


async def test_a_worker_is_told_what_it_owns(stores: Stores) -> None:
    await make(stores, 3)
    await stores.workers.renew("w1", 60)
    a, b, c = sorted(await stores.workers.claim("w1", 9, 9, KEYS), key=lambda x: x.session_id)
    async with stores.sessions.locked("default", b.session_id) as locked:
        assert locked is not None
        await locked.deliver(message())
    await stores.journal.append_batch([append(c, release=Release())])
    assert await stores.workers.owned("w1") == [
        Owned(a.session_id, 1, behind=False),
        Owned(b.session_id, 1, behind=True),
    ]
    assert await stores.workers.owned("w2") == []


async def test_a_worker_that_leaves_hands_over_at_once(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    await stores.workers.remove("w1")
    assert not await stores.workers.any_alive()
    assert (await claim_one(stores, "w2")).session_id == claim.session_id


async def test_an_inbox_write_does_not_erase_a_timer(stores: Stores) -> None:
    await make(stores)
    claim = await claim_one(stores)
    far = 4_000_000_000_000_000
    entry = append(claim, status="waiting", release=Release(timer_us=far))
    await stores.journal.append_batch([entry])
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        await locked.deliver(message())
    claim = await claim_one(stores)
    # Handed over before it could release: the timer must still be there, so let it be the past.
    past = append(claim, head=3, status="waiting", release=Release(timer_us=1))
    await stores.journal.append_batch([past])
    assert (await claim_one(stores)).session_id == claim.session_id


async def test_no_tenant_takes_more_than_its_share(stores: Stores) -> None:
    await make(stores, 30, "big")
    await make(stores, 2, "small")
    await stores.workers.renew("w1", 60)
    taken = Counter(c.tenant for c in await stores.workers.claim("w1", 64, 3, KEYS))
    assert taken == {"big": 3, "small": 2}
    assert len(await stores.workers.claim("w1", 2, 3, KEYS)) == 2


async def test_workers_racing_never_take_the_same_session(stores: Stores) -> None:
    await make(stores, 40)
    names = [f"w{n}" for n in range(4)]
    for name in names:
        await stores.workers.renew(name, 60)
    taken: Counter[str] = Counter()
    winners = set()
    for _ in range(40):
        async with asyncio.TaskGroup() as group:
            tasks = {n: group.create_task(stores.workers.claim(n, 3, 3, KEYS)) for n in names}
        for name, task in tasks.items():
            taken.update(c.session_id for c in task.result())
            winners |= {name} if task.result() else set()
        if len(taken) == 40:
            break
    assert set(taken.values()) == {1}
    assert len(taken) == 40
    assert len(winners) > 1, "more than one worker got some"


@pytest.mark.req("SAFE-5")
async def test_what_is_due_and_unowned_is_counted_up_to_a_bound(stores: Stores) -> None:
    assert await stores.workers.queued(9) == 0
    for _ in range(4):
        await stores.sessions.create(new_session(), None)
    assert await stores.workers.queued(9) == 4
    assert await stores.workers.queued(3) == 3
    await stores.workers.renew("w1", 60)
    (claim,) = await stores.workers.claim("w1", 1, 1, KEYS)
    assert await stores.workers.queued(9) == 3
    release = Release(AT_US)
    await stores.journal.append_batch([append(claim, status="waiting", release=release)])
    assert await stores.workers.queued(9) == 3


async def _told(stores: Stores, session_id: str, kind: InboxKind) -> None:
    async with stores.sessions.locked("default", session_id) as locked:
        assert locked is not None
        subject = "session" if kind is InboxKind.CLOSE else None
        assert await locked.deliver(Delivery(kind, b"sealed", subject)) is not None


@pytest.mark.req("API-8")
async def test_what_was_asked_to_end_is_claimed_apart(stores: Stores) -> None:
    await make(stores, 4)
    await stores.workers.renew("w1", 60)
    assert await stores.workers.claim_ending("w1", 9, KEYS) == []
    ids = [row.id for row in await page(stores)]
    kinds = (InboxKind.CANCEL, InboxKind.CLOSE, InboxKind.MESSAGE)
    for session_id, kind in zip(ids, kinds, strict=False):
        await _told(stores, session_id, kind)
    assert await stores.workers.claim_ending("w1", 9, ("other",)) == []
    assert await stores.workers.claim_ending("w2", 9, KEYS) == [], "it has no lease"
    (first,) = await stores.workers.claim_ending("w1", 1, KEYS)
    (second,) = await stores.workers.claim_ending("w1", 9, KEYS)
    assert {first.session_id, second.session_id} == set(ids[:2])
    assert (first.epoch, first.claims, first.takeover) == (1, 1, False)
    assert (first.inbox_head, first.inbox_seen) == (1, 0)
    assert await stores.workers.claim_ending("w1", 9, KEYS) == [], "it has a living owner"
    assert len(await stores.workers.claim("w1", 9, 9, KEYS)) == 2


@pytest.mark.req("API-8")
async def test_one_request_to_end_is_seen_once(stores: Stores) -> None:
    """What is taken out of the inbox asks for nothing any more, whatever came behind it."""
    await make(stores)
    (session_id,) = [row.id for row in await page(stores)]
    await _told(stores, session_id, InboxKind.CANCEL)
    await _told(stores, session_id, InboxKind.MESSAGE)
    await stores.workers.renew("w1", 60)
    (claim,) = await stores.workers.claim_ending("w1", 9, KEYS)
    await stores.journal.append_batch([append(claim, seen=1)])
    await stores.workers.give_up("w1", session_id, claim.epoch, blameless=True)
    assert await stores.workers.claim_ending("w1", 9, KEYS) == []
    (claim,) = await stores.workers.claim("w1", 9, 9, KEYS)
    entry = append(claim, seen=2, release=Release())
    assert [a.released for a in await stores.journal.append_batch([entry])] == [True]
    await _told(stores, session_id, InboxKind.CANCEL)
    (claim,) = await stores.workers.claim_ending("w1", 9, KEYS)
    assert claim.session_id == session_id


@pytest.mark.req("API-8", "STATE-4")
async def test_a_lost_owner_of_what_is_to_end_is_replaced(stores: Stores) -> None:
    await make(stores)
    old = await claim_one(stores)
    await _told(stores, old.session_id, InboxKind.CANCEL)
    await stores.workers.renew("w2", 60)
    assert await stores.workers.claim_ending("w2", 9, KEYS) == []
    await stores.workers.renew("w1", 0)
    (claim,) = await stores.workers.claim_ending("w2", 9, KEYS)
    assert (claim.epoch, claim.takeover) == (2, True)
    assert (await stores.journal.append_batch([append(old)]))[0].fate is Fate.FENCED


async def test_what_is_due_keeps_its_place_when_it_is_told_something(stores: Stores) -> None:
    await make(stores, 2)
    older, _newer = sorted(row.id for row in await page(stores))
    async with stores.sessions.locked("default", older) as locked:
        assert locked is not None
        await locked.deliver(message())
        await locked.wake()
    assert (await claim_one(stores)).session_id == older


async def page(stores: Stores) -> list[SessionRow]:
    return await stores.sessions.page(
        "default", after=None, limit=99, status=None, agent=None, tool=None
    )
