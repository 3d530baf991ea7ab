"""Appends made by hand, for the tests of the writer."""

from app.runtime.ports.journal import Append, Facts, Release, SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.sessions import NewSession
from tests.fakes.store import MemoryStore

FACTS = Facts("active", "THINK", 1, 1, None, None, "{}", "{}", "", (), None)


def sealed(seq: int, size: int = 10) -> SealedEvent:
    payload = b"x" * size
    return SealedEvent(seq, 1, "phase.entered", None, 1, 1, 0, payload, b"hash-%d" % seq)


def entry(
    session_id: str,
    *,
    after: int = 1,
    events: int = 1,
    epoch: int = 1,
    release: bool = False,
    size: int = 10,
    answered: bool = True,
    inbox_seen: int = 0,
) -> Append:
    made = tuple(sealed(after + n, size) for n in range(1, events + 1))
    return Append(
        session_id=session_id,
        epoch=epoch,
        expected_head=after,
        head=after + events,
        head_hash=made[-1].hash if made else b"hash-%d" % after,
        events=made,
        facts=FACTS,
        inbox_seen=inbox_seen,
        answered=answered,
        release=Release() if release else None,
        view=None,
    )


async def put(store: MemoryStore, *ids: str) -> None:
    """Put sessions with one event into the store, owned by w1 under epoch 1."""
    for session_id in ids:
        new = NewSession(
            id=session_id,
            tenant="default",
            agent="default",
            agent_version=1,
            model="m",
            mode="react",
            prompt="agent@1",
            facts=FACTS,
            key=WrappedKey("k1", b"w"),
            head_hash=b"hash-1",
            events=(sealed(1),),
            parent=None,
            metadata=None,
            created_at_us=0,
        )
        await store.create(new, None)
        store.rows[session_id].epoch = 1
        store.rows[session_id].owner = "w1"
        store.rows[session_id].wake_us = None
