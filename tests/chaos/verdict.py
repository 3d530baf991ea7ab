"""What must be true of a session whatever was done to the processes: read from its journal.

The journal is read from the database and opened here, so a service that shows something else than
it wrote would be found out too.
"""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import asyncpg

from app.core.context import assemble
from app.core.events import (
    Event,
    ModelRequested,
    SessionClosed,
    SessionForked,
    ToolFinished,
    ToolIntended,
    TurnEnded,
    TurnStarted,
)
from app.core.evolve import evolve
from app.core.messages import sequence_fault
from app.core.state import State
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.runtime.sealing import Sealer
from app.storage.chain import verify_chain
from app.storage.codec import JsonCodec
from app.storage.keys import AesCipher, MasterKeys
from app.storage.sql import event_of
from tests.chaos.effects import Effects
from tests.chaos.reading import Listener

_EVENTS: Final = """
select seq, v, type, phase, turn, step, at, payload, hash
from events where session_id = $1 order by seq
"""
_ROW: Final = """
select head, head_hash, key_id, data_key, owner, wake_at, timer_at, inbox_head, inbox_seen, status,
    pending_kind
from sessions where id = $1
"""


class Journal:
    """A session as the database has it, opened."""

    def __init__(self, row: asyncpg.Record, sealed: list[SealedEvent], cipher: AesCipher) -> None:
        self.row = row
        self.sealed = sealed
        self.cipher = cipher
        self.sealer = Sealer(JsonCodec(), cipher)
        self.events: list[Event] = [self.sealer.open(event) for event in sealed]

    @classmethod
    async def read(
        cls, connection: asyncpg.Connection, keys: MasterKeys, session_id: str
    ) -> "Journal":
        """Read one."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(_ROW, session_id)
            rows = await connection.fetch(_EVENTS, session_id)
        assert row is not None
        cipher = keys.unwrap(session_id, WrappedKey(row["key_id"], row["data_key"]))
        return cls(row, [event_of(r) for r in rows], cipher)

    def wire(self) -> list[tuple[int, object]]:
        """Return the events as a reader gets them."""
        codec = JsonCodec()
        return [(event.seq, json.loads(codec.encode(event))) for event in self.events]


def faults_of(journal: Journal, *, rests: bool = True) -> list[str]:
    """Return what is wrong with a journal; one that rests has no turn open and nothing to do."""
    found = [*_chain(journal), *_fold(journal.events), *_turns(journal.events)]
    found += _calls(journal.events)
    if rests:
        found += _rest(journal)
    return found


def _chain(journal: Journal) -> Iterable[str]:
    row = journal.row
    broken = verify_chain(
        journal.sealed,
        journal.cipher,
        head=row["head"],
        head_hash=row["head_hash"],
        opener=journal.sealer.open,
    )
    if broken is not None:
        yield f"chain: {broken.fault} at {broken.seq}: {broken.detail}"


def _fold(events: Iterable[Event]) -> Iterable[str]:
    state: State | None = None
    for event in events:
        try:
            state = evolve(state, event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the journal does not fold
            yield f"fold: {event.body.TYPE} at {event.seq}: {error!r}"
            return
        if isinstance(event.body, ModelRequested):
            fault = sequence_fault(assemble(state, event.body.purpose))
            if fault is not None:
                yield f"history at {event.seq}: {fault.message}"
        if isinstance(event.body, TurnEnded) and state.calls:
            yield f"open calls at the end of turn {event.turn}: {state.calls}"


def _turns(events: list[Event]) -> Iterable[str]:
    """Turns follow one another, and each has one end, which is its last event."""
    started = [e.turn for e in events if isinstance(e.body, TurnStarted)]
    ended = [e.turn for e in events if isinstance(e.body, TurnEnded)]
    if started != list(range(1, len(started) + 1)):
        yield f"turns started: {started}"
    if len(set(ended)) != len(ended):
        yield f"turns ended: {ended}"
    open_turns = set(started[:-1]) - set(ended)
    if open_turns:
        yield f"turns without an end: {sorted(open_turns)}"
    for before, after in pairwise(events):
        if isinstance(before.body, SessionClosed) and not isinstance(after.body, SessionForked):
            yield f"{after.body.TYPE} at {after.seq} after the session was closed"
        over = isinstance(before.body, TurnEnded)
        if over and isinstance(after.body, ToolIntended | ToolFinished | ModelRequested):
            yield f"{after.body.TYPE} at {after.seq} after the end of its turn"


def _calls(events: list[Event]) -> Iterable[str]:
    """Each call is intended once and finished once."""
    intended = Counter(e.body.call_id for e in events if isinstance(e.body, ToolIntended))
    finished = Counter(e.body.call_id for e in events if isinstance(e.body, ToolFinished))
    yield from (f"call {i} intended {n} times" for i, n in intended.items() if n > 1)
    yield from (f"call {i} finished {n} times" for i, n in finished.items() if n > 1)
    yield from (f"call {i} never finished" for i in intended if i not in finished)


def _rest(journal: Journal) -> Iterable[str]:
    row = journal.row
    if row["owner"] is not None or row["wake_at"] is not None:
        yield f"does not rest: owner {row['owner']}, due {row['wake_at']}"
    if row["inbox_head"] != row["inbox_seen"]:
        yield f"inbox: {row['inbox_seen']} of {row['inbox_head']} were seen"
    started = sum(isinstance(e.body, TurnStarted) for e in journal.events)
    ended = sum(isinstance(e.body, TurnEnded) for e in journal.events)
    if started != ended:
        yield f"{started} turns started, {ended} ended"


def faults_of_effects(effects: Effects, expected: dict[str, str], name: str) -> list[str]:
    """Return which ops did not have exactly the one effect that they should have had."""
    found: list[str] = []
    for op, tool in expected.items():
        if effects.effects[op] != 1:
            found.append(f"{op} ({tool}) had {effects.effects[op]} effects")
        if tool == "idempotent" and len(effects.keys[op]) != 1:
            found.append(f"{op} was called under {len(effects.keys[op])} keys")
    mine = [op for op in effects.effects if op.startswith(f"{name}-")]
    return found + [f"{op}: an effect nobody wanted" for op in mine if op not in expected]


def faults_of_reading(listener: Listener, journal: Journal) -> list[str]:
    """Return how a reader differs from the journal."""
    got, wanted = listener.durable, journal.wire()
    if got == wanted:
        return list(listener.faults)
    at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), -1)
    where = f"first at {at + 1}" if at >= 0 else "a prefix is right"
    return [*listener.faults, f"reader: {len(got)} events of {len(wanted)}, {where}"]


def faults_of_sayings(journal: Journal, said: list[str], name: str) -> list[str]:
    """Return which messages did not come into the history exactly once."""
    texts = Counter(
        str(getattr(e.body, "text", ""))
        for e in journal.events
        if e.body.TYPE in {"turn.started", "message.received"}
    )
    told = Counter(e.body.text for e in journal.events if isinstance(e.body, TurnStarted))
    wanted = [f"{name} {word}" for word in said]
    return [
        *(f"{text!r} began {told[text]} turns" for text in wanted if told[text] != 1),
        *(f"{text!r} was received {texts[text]} times" for text in wanted if texts[text] > 2),
    ]
