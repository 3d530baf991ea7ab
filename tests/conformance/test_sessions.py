"""The session port, on the fake and on Postgres."""

import asyncio
from dataclasses import replace

import pytest

from app.core.lifecycle import Status
from app.runtime.errors import KeyTaken
from app.runtime.ports.journal import Release, Snapshot
from app.runtime.ports.sessions import Delivery, InboxKind, InboxRow, Remembered
from tests.conformance.conftest import Stores
from tests.making import KEYS, append, facts, message, new_session, remember


async def test_a_new_session_is_due_and_holds_its_first_events(stores: Stores) -> None:
    new = replace(new_session(), parent="ses_0", metadata=b"sealed", facts=facts(tools=("a", "b")))
    assert await stores.sessions.create(new, None) is None
    row = await stores.sessions.get("default", new.id)
    assert row is not None
    assert (row.status, row.waking, row.owner, row.owner_alive) == (
        Status.QUEUED,
        True,
        None,
        False,
    )
    assert (row.head, row.head_hash, row.epoch, row.facts) == (2, b"h2", 0, new.facts)
    assert (row.key, row.metadata, row.parent, row.view) == (new.key, b"sealed", "ses_0", None)
    assert tuple(await stores.journal.read(new.id, 0, 9)) == new.events


@pytest.mark.req("API-11")
@pytest.mark.case("C068")
async def test_one_key_makes_one_session(stores: Stores) -> None:
    tries = [new_session() for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        made = [group.create_task(stores.sessions.create(n, remember())) for n in tries]
    answers = [m.result() for m in made]
    assert answers.count(None) == 1
    assert set(answers) - {None} == {Remembered(b"hash", 201, b"body")}
    rows = await list_all(stores)
    assert rows == [tries[answers.index(None)].id]
    assert await stores.sessions.create(new_session("other"), remember(tenant="other")) is None


async def list_all(stores: Stores, tenant: str = "default") -> list[str]:
    rows = await stores.sessions.page(
        tenant, after=None, limit=100, status=None, agent=None, tool=None
    )
    return [row.id for row in rows]


@pytest.mark.case("C162")
async def test_a_session_of_another_tenant_is_not_there(stores: Stores) -> None:
    new = new_session("a")
    await stores.sessions.create(new, None)
    assert await stores.sessions.get("b", new.id) is None
    assert await list_all(stores, "b") == []
    async with stores.sessions.locked("b", new.id) as locked:
        assert locked is None


async def test_pages_and_filters(stores: Stores) -> None:
    ids = [f"ses_{n}" for n in range(5)]
    for n, session_id in enumerate(ids):
        new = new_session(session_id=session_id)
        tools = ("calculate",) if n % 2 else ("now", "calculate")
        new = replace(new, agent=f"agent{n % 2}", facts=facts(tools=tools))
        await stores.sessions.create(new, None)
    assert await list_all(stores) == ids[::-1]

    async def page(**asked: str | None) -> list[str]:
        wanted = {"after": None, "status": None, "agent": None, "tool": None, **asked}
        return [r.id for r in await stores.sessions.page("default", limit=2, **wanted)]

    assert await page(after="ses_3") == ["ses_2", "ses_1"]
    assert await page(after="ses_0") == []
    assert await page(agent="agent1") == ["ses_3", "ses_1"]
    assert await page(tool="now") == ["ses_4", "ses_2"]
    assert await page(status="queued") == ["ses_4", "ses_3"]
    assert await page(status="completed") == []


@pytest.mark.parametrize("status", ["active", "waiting", "completed", "closed"])
async def test_the_status_of_a_row_and_of_the_filter_agree(stores: Stores, status: str) -> None:
    """Over everything that can be true of a row: unseen inbox, owner, due, released."""
    await stores.workers.renew("w1", 60)
    for _ in range(4):
        await stores.sessions.create(new_session(), None)
    claims = await stores.workers.claim("w1", 3, 3, KEYS)
    for claim in claims:
        release = Release() if claim is not claims[0] else None
        await stores.journal.append_batch([append(claim, status=status, release=release)])
    async with stores.sessions.locked("default", claims[2].session_id) as locked:
        assert locked is not None
        await locked.deliver(message())
    for session_id in await list_all(stores):
        row = await stores.sessions.get("default", session_id)
        assert row is not None
        found = {
            s
            for s in Status
            for r in await stores.sessions.page(
                "default", after=None, limit=9, status=s, agent=None, tool=None
            )
            if r.id == session_id
        }
        assert found == {row.status}


async def test_deliveries_are_numbered_and_wake_the_session(stores: Stores) -> None:
    new = new_session()
    await stores.sessions.create(new, None)
    await stores.workers.renew("w1", 60)
    (claim,) = await stores.workers.claim("w1", 1, 1, KEYS)
    await stores.journal.append_batch([append(claim, status="completed", release=Release())])
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert locked.row.status is Status.COMPLETED
        assert await locked.deliver(message(b"one")) == 1
        assert await locked.deliver(message(b"two")) == 2
    row = await stores.sessions.get("default", new.id)
    assert row is not None
    assert (row.status, row.inbox_head, row.inbox_seen, row.waking) == (Status.QUEUED, 2, 0, True)
    assert await stores.sessions.inbox(new.id, 0) == [
        InboxRow(1, InboxKind.MESSAGE, b"one"),
        InboxRow(2, InboxKind.MESSAGE, b"two"),
    ]
    assert [r.n for r in await stores.sessions.inbox(new.id, 1)] == [2]


async def test_a_subject_is_taken_once(stores: Stores) -> None:
    new, other = new_session(), new_session()
    await stores.sessions.create(new, None)
    await stores.sessions.create(other, None)
    delivery = message(b"x", subject="t1_c1_0")
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.deliver(delivery) == 1
        assert await locked.deliver(delivery) is None
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.deliver(delivery) is None
        assert await locked.deliver(replace(delivery, kind=InboxKind.VERIFICATION)) == 2
        assert await locked.deliver(message()) == 3
    async with stores.sessions.locked("default", other.id) as locked:
        assert locked is not None
        assert await locked.deliver(delivery) == 1


async def test_nothing_is_put_behind_a_request_to_close(stores: Stores) -> None:
    new, other = new_session(), new_session()
    await stores.sessions.create(new, None)
    await stores.sessions.create(other, None)
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.deliver(message()) == 1
        assert await locked.deliver(Delivery(InboxKind.CLOSE, b"", subject="session")) == 2
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.deliver(message()) is None
        assert await locked.deliver(Delivery(InboxKind.CANCEL, b"", subject="head:2")) is None
    async with stores.sessions.locked("default", other.id) as locked:
        assert locked is not None
        assert await locked.deliver(message()) == 1


async def test_a_block_that_fails_leaves_nothing(stores: Stores) -> None:
    new = new_session()
    await stores.sessions.create(new, None)

    async def deliver_and_fail() -> None:
        async with stores.sessions.locked("default", new.id) as locked:
            assert locked is not None
            await locked.deliver(message(subject="s"))
            await locked.remember(remember())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await deliver_and_fail()
    assert await stores.sessions.inbox(new.id, 0) == []
    assert await stores.sessions.recall("default", "k") is None


async def test_a_key_taken_meanwhile_undoes_the_delivery(stores: Stores) -> None:
    new = new_session()
    await stores.sessions.create(new, remember())

    async def deliver_and_remember() -> None:
        async with stores.sessions.locked("default", new.id) as locked:
            assert locked is not None
            await locked.deliver(message())
            await locked.remember(remember())

    with pytest.raises(KeyTaken):
        await deliver_and_remember()
    row = await stores.sessions.get("default", new.id)
    assert row is not None
    assert row.inbox_head == 0


async def test_a_delivery_and_its_record_come_together(stores: Stores) -> None:
    new = new_session()
    await stores.sessions.create(new, None)
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        await locked.wake()
        assert await locked.recall("m") is None
        await locked.remember(remember("m", 202))
    answer = Remembered(b"hash", 202, b"body")
    assert await stores.sessions.recall("default", "m") == answer
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        assert await locked.recall("m") == answer


async def test_a_key_in_flight_is_marked_and_then_answered(stores: Stores) -> None:
    mark = replace(remember(status=0), body=b"")
    assert await stores.sessions.begin_remembering(mark) is None
    assert await stores.sessions.begin_remembering(mark) == Remembered(b"hash", 0, b"")
    await stores.sessions.finish_remembering(remember())
    answer = Remembered(b"hash", 201, b"body")
    assert await stores.sessions.begin_remembering(mark) == answer
    await stores.sessions.finish_remembering(replace(remember(), body=b"later"))
    assert await stores.sessions.recall("default", "k") == answer


@pytest.mark.req("STATE-9")
async def test_erasing_leaves_the_journal_and_no_content(stores: Stores) -> None:
    new = replace(new_session(), metadata=b"sealed")
    mine = replace(remember("mine"), session_id=new.id)
    await stores.sessions.create(new, mine)
    await stores.sessions.begin_remembering(remember("another"))
    await stores.journal.save_snapshot(new.id, Snapshot(2, 1, b"state"))
    async with stores.sessions.locked("default", new.id) as locked:
        assert locked is not None
        await locked.erase()
    row = await stores.sessions.get("default", new.id)
    assert row is not None
    assert (row.key.key_id, row.key.wrapped) == ("dev", b"")
    assert (row.metadata, row.view, row.head_hash) == (None, None, b"h2")
    assert tuple(await stores.journal.read(new.id, 0, 9)) == new.events
    assert await stores.journal.latest_snapshot(new.id) is None
    assert await stores.sessions.recall("default", "mine") == Remembered(b"", 410, b"")
    assert await stores.sessions.recall("default", "another") == Remembered(b"hash", 201, b"body")


@pytest.mark.req("API-11")
async def test_a_mark_is_taken_over_when_it_is_old_and_goes_when_it_is_dropped(
    stores: Stores,
) -> None:
    mark = replace(remember(status=0), body=b"")
    assert not await stores.sessions.retake_mark(mark, 0)
    assert await stores.sessions.begin_remembering(mark) is None
    assert not await stores.sessions.retake_mark(mark, 60)
    await asyncio.sleep(0.01)  # it is a matter of age
    assert await stores.sessions.retake_mark(mark, 0.005)
    await stores.sessions.drop_mark(mark)
    assert await stores.sessions.begin_remembering(mark) is None
    await stores.sessions.finish_remembering(replace(remember(), location="/v1/x"))
    assert not await stores.sessions.retake_mark(mark, -60)
    await stores.sessions.drop_mark(mark)
    found = await stores.sessions.recall("default", "k")
    assert found == Remembered(b"hash", 201, b"body", "/v1/x")
