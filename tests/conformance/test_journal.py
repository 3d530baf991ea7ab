"""The journal port, on the fake and on Postgres."""

import asyncio
from dataclasses import replace

import pytest

from app.runtime.ports.journal import Appended, Fate, Release, Snapshot
from app.runtime.ports.sessions import Delivery, InboxKind
from app.runtime.ports.workers import Claim, Owned
from tests.conformance.conftest import Stores
from tests.making import AT_US, KEYS, append, event, message, new_session


async def claimed(stores: Stores, count: int = 1) -> list[Claim]:
    for _ in range(count):
        await stores.sessions.create(new_session(), None)
    await stores.workers.renew("w1", 60)
    claims = await stores.workers.claim("w1", count, count, KEYS)
    assert len(claims) == count
    return sorted(claims, key=lambda c: c.session_id)


async def test_an_append_is_read_back_as_it_was(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    tools = ("get_weather", 'odd "name"', "back\\slash", "a,b", "{}", "NULL", "")
    entry = append(claim, events=2, tools=tools, view=b"view", status="waiting")
    assert await stores.journal.append_batch([entry]) == [Appended(Fate.WRITTEN, 0, released=False)]
    read = await stores.journal.read(claim.session_id, 0, 100)
    assert read == [event(1), event(2), *entry.events]
    assert await stores.journal.read(claim.session_id, 1, 2) == read[1:3]
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    assert (row.facts, row.view, row.head, row.head_hash) == (entry.facts, b"view", 4, b"h4")
    assert row.created_at_us == AT_US


async def test_a_page_ends_with_the_event_that_reaches_its_size(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await stores.journal.append_batch([append(claim, events=4)])
    events = await stores.journal.read(claim.session_id, 0, 100)
    sizes = [len(event.payload) for event in events]
    assert (len(sizes), min(sizes) > 0) == (6, True)
    for most in (1, sizes[0], sizes[0] + 1, sum(sizes[:3]), sum(sizes), 10**9):
        page = await stores.journal.read(claim.session_id, 0, 5, most)
        assert page == events[: min(5, next((n for n in range(7) if sum(sizes[:n]) >= most), 6))]
    assert await stores.journal.read(claim.session_id, 4, 5, 1) == events[4:5]


async def test_a_view_stays_until_a_new_one_comes(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    await stores.journal.append_batch([append(claim, view=b"old")])
    await stores.journal.append_batch([append(claim, head=3)])
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    assert row.view == b"old"


@pytest.mark.req("STATE-4")
async def test_only_the_right_epoch_and_head_may_write(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    stale = replace(claim, epoch=claim.epoch - 1)
    unknown = replace(claim, session_id="ses_none")
    attempts = [append(stale), append(claim, head=1), append(claim, head=3), append(unknown)]
    for attempt in attempts:
        assert await stores.journal.append_batch([attempt]) == [Appended(Fate.FENCED)]
    assert len(await stores.journal.read(claim.session_id, 0, 100)) == 2
    good = append(claim)
    assert (await stores.journal.append_batch([good]))[0].fate is Fate.WRITTEN
    assert (await stores.journal.append_batch([good]))[0].fate is Fate.FENCED


@pytest.mark.req("TOOL-17")
async def test_what_must_not_be_behind_is_written_only_when_all_was_seen(stores: Stores) -> None:
    """What lapses while somebody speaks up has not lapsed."""
    a, b = await claimed(stores, 2)
    async with stores.sessions.locked("default", a.session_id) as locked:
        assert locked is not None
        assert await locked.deliver(message()) == 1
    lapses = [replace(append(claim), unless_behind=True) for claim in (a, b)]
    behind, written = await stores.journal.append_batch(lapses)
    assert behind == Appended(Fate.BEHIND, 1)
    assert written.fate is Fate.WRITTEN
    assert len(await stores.journal.read(a.session_id, 0, 100)) == 2
    (seen,) = await stores.journal.append_batch([replace(lapses[0], inbox_seen=1)])
    assert seen.fate is Fate.WRITTEN


async def test_a_batch_answers_in_its_order_and_each_entry_for_itself(stores: Stores) -> None:
    a, b, c = await claimed(stores, 3)
    stale = replace(b, epoch=b.epoch + 1)
    fates = await stores.journal.append_batch([append(c), append(stale), append(a)])
    assert [f.fate for f in fates] == [Fate.WRITTEN, Fate.FENCED, Fate.WRITTEN]
    assert await stores.journal.append_batch([]) == []
    many = await stores.journal.read_many({a.session_id: 2, b.session_id: 0, "ses_none": 0})
    assert {i: [e.seq for e in events] for i, events in many.items()} == {
        a.session_id: [3],
        b.session_id: [1, 2],
        "ses_none": [],
    }


async def test_a_row_locked_by_someone_is_skipped_and_not_waited_for(stores: Stores) -> None:
    a, b = await claimed(stores, 2)
    async with stores.sessions.locked("default", a.session_id):
        fates = await stores.journal.append_batch([append(a), append(b)])
        assert [f.fate for f in fates] == [Fate.SKIPPED, Fate.WRITTEN]
    assert (await stores.journal.append_batch([append(a)]))[0].fate is Fate.WRITTEN


@pytest.mark.req("STATE-4")
async def test_an_append_in_its_turn_waits_for_the_row_and_is_fenced_as_any_other(
    stores: Stores,
) -> None:
    (claim,) = await claimed(stores)
    attempts = [
        append(replace(claim, epoch=claim.epoch - 1)),
        append(claim, head=3),
        append(replace(claim, session_id="ses_none")),
    ]
    for attempt in attempts:
        assert await stores.journal.append_in_turn(attempt) == Appended(Fate.FENCED)
    async with (
        asyncio.TaskGroup() as group,
        stores.sessions.locked("default", claim.session_id) as locked,
    ):
        assert locked is not None
        appending = group.create_task(
            stores.journal.append_in_turn(append(claim, release=Release()))
        )
        assert await locked.deliver(message()) == 1
        assert not appending.done()
    assert appending.result() == Appended(Fate.WRITTEN, 1, released=False)
    assert len(await stores.journal.read(claim.session_id, 0, 100)) == 3


async def test_a_release_lets_go_and_sets_the_timer(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    entry = append(claim, status="waiting", release=Release(timer_us=AT_US))
    assert await stores.journal.append_batch([entry]) == [Appended(Fate.WRITTEN, 0, released=True)]
    row = await stores.sessions.get("default", claim.session_id)
    assert row is not None
    assert (row.owner, row.waking) == (None, False)
    (again,) = await stores.workers.claim("w1", 1, 1, KEYS)  # the timer is in the past
    await stores.journal.append_batch(
        [append(again, events=0, status="waiting", release=Release())]
    )
    assert await stores.workers.claim("w1", 1, 1, KEYS) == [], "a timer fires once"


@pytest.mark.req("API-7")
async def test_a_message_at_the_last_moment_keeps_the_owner(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        assert await locked.deliver(message()) == 1
    entry = append(claim, status="completed", release=Release(), seen=0)
    assert await stores.journal.append_batch([entry]) == [Appended(Fate.WRITTEN, 1, released=False)]
    assert await stores.workers.owned("w1") == [Owned(claim.session_id, 1, behind=True)]
    head = (await stores.journal.heads([claim.session_id]))[claim.session_id]
    assert (head.idle, head.owner, head.inbox_head) == (False, "w1", 1)
    entry = append(claim, events=0, head=3, status="completed", release=Release(), seen=1)
    assert await stores.journal.append_batch([entry]) == [Appended(Fate.WRITTEN, 1, released=True)]
    head = (await stores.journal.heads([claim.session_id]))[claim.session_id]
    assert (head.idle, head.head, head.head_hash, head.owner) == (True, 3, b"h3", None)


async def test_heads_tell_who_is_at_rest(stores: Stores) -> None:
    active, waiting, done = await claimed(stores, 3)
    release = Release()
    await stores.journal.append_batch([append(waiting, status="waiting", release=release)])
    await stores.journal.append_batch([append(done, status="stopped", release=release)])
    ids = [c.session_id for c in (active, waiting, done)]
    heads = await stores.journal.heads([*ids, "ses_none"])
    assert [heads[i].idle for i in ids] == [False, False, True]
    assert "ses_none" not in heads
    assert heads[ids[0]].epoch == active.epoch
    async with stores.sessions.locked("default", ids[2]) as locked:
        assert locked is not None
        await locked.deliver(message())
    assert not (await stores.journal.heads(ids))[ids[2]].idle


async def test_the_newest_snapshot_stays(stores: Stores) -> None:
    assert await stores.journal.latest_snapshot("ses_1") is None
    for snapshot in (Snapshot(5, 1, b"five"), Snapshot(9, 1, b"nine"), Snapshot(7, 1, b"seven")):
        await stores.journal.save_snapshot("ses_1", snapshot)
    assert await stores.journal.latest_snapshot("ses_1") == Snapshot(9, 1, b"nine")


@pytest.mark.req("STATE-4")
async def test_who_has_given_a_session_up_writes_no_more(stores: Stores) -> None:
    """Its epoch is still the newest: nobody has claimed the session since."""
    (claim,) = await claimed(stores)
    await stores.workers.give_up("w1", claim.session_id, claim.epoch, blameless=True)
    assert await stores.journal.append_batch([append(claim)]) == [Appended(Fate.FENCED)]
    assert len(await stores.journal.read(claim.session_id, 0, 9)) == 2


@pytest.mark.req("STATE-4")
async def test_a_claim_tells_which_timer_rang(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    assert claim.rang_us is None
    await stores.journal.append_batch([append(claim, release=Release(AT_US))])
    (again,) = await stores.workers.claim("w1", 1, 1, KEYS)
    assert again.rang_us == AT_US


async def test_the_newest_of_what_was_not_seen(stores: Stores) -> None:
    (claim,) = await claimed(stores)
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        assert await locked.newest() is None
        await locked.deliver(message())
        assert await locked.newest() is InboxKind.MESSAGE
        await locked.deliver(Delivery(InboxKind.CANCEL, b""))
        assert await locked.newest() is InboxKind.CANCEL
    await stores.journal.append_batch([append(claim, seen=2)])
    async with stores.sessions.locked("default", claim.session_id) as locked:
        assert locked is not None
        assert await locked.newest() is None
