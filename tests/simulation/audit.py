"""The invariants, checked where they could break: at each commit, each send, each frame.

The first that does not hold ends the run. What is needed is kept a session, so that a check costs
as much as what it looks at and not as much as everything before.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from app.core.events import (
    ApprovalDecided,
    EffectClass,
    Event,
    MessageReceived,
    Outcome,
    SessionClosed,
    SessionResumed,
    ToolFinished,
    ToolIntended,
    TurnEnded,
    TurnStarted,
    VerificationAsked,
)
from app.core.evolve import evolve
from app.core.state import State
from app.core.values import Choice
from app.runtime.ports.journal import Append, SealedEvent
from app.runtime.sealing import Sealer
from app.runtime.views import facts_of
from app.storage.codec import JsonCodec
from tests.fakes.row import Row
from tests.fakes.store import MemoryStore
from tests.simulation.loop import Process
from tests.simulation.small import LinkedCipher, Watched

if TYPE_CHECKING:
    from tests.simulation.promises import Promises

CHANGING = frozenset(
    {
        *("append_batch", "append_in_turn", "commit", "claim", "claim_ending"),
        *("give_up", "sweep", "remove", "create"),
    }
)
PASSES = frozenset({"StoreUnavailable", "OverError"})
_NEWS = (MessageReceived, SessionResumed, SessionClosed, TurnStarted)


@dataclass
class Ledger:
    """What the audit knows of one session."""

    sealer: Sealer
    session_id: str
    state: State | None = None
    seq: int = 0
    hash: bytes = b""
    owner: str | None = None
    epoch: int = 0
    status: str = ""
    open_turn: int | None = None
    ended: set[int] = field(default_factory=set)
    last_end: int = 0
    continues: dict[int, int] = field(default_factory=dict)
    intended: dict[str, EffectClass] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    finished: dict[str, Outcome] = field(default_factory=dict)
    messages: Counter[str] = field(default_factory=Counter)
    told: list[tuple[float, str, int]] = field(default_factory=list)
    """Of each event: when it was committed, by whom, under which epoch."""
    plain: list[bytes] = field(default_factory=list)
    """The bytes that readers must get, in order."""

    def root(self, turn: int) -> int:
        """Return the turn that this one goes on with, at the end of the chain."""
        while turn in self.continues:
            turn = self.continues[turn]
        return turn


class Audit(Watched):
    """Watches one run. `stop` is called at the first violation."""

    def __init__(self, now_s: Callable[[], float], stop: Callable[[], None]) -> None:
        self.violation: str | None = None
        self.trace: list[tuple[object, ...]] = []
        self.ledgers: dict[str, Ledger] = {}
        self.accepted: list[tuple[str, str]] = []
        self.observed_until: dict[str, dict[int, str]] = {}
        self.live: dict[str, State] = {}
        self.under_way: set[str] = set()
        """The calls, by their keys, which the tool server has taken and not carried out yet."""
        self.decided: Counter[str] = Counter()
        self.lapsed: set[str] = set()
        self.store: MemoryStore | None = None
        self.promises: Promises | None = None
        self.repeated: set[str] = set()
        """What may be said more than once: what schedules say to a session."""
        self.now_s = now_s
        self._stop = stop
        self._codec = JsonCodec()

    def note(self, *what: object) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now_s(), *what))

    def fail(self, why: str) -> None:
        """End the run: something that must hold does not."""
        if self.violation is None:
            self.violation = why
            self.note("audit", "VIOLATION", why)
        self._stop()

    def ledger(self, session_id: str) -> Ledger:
        found = self.ledgers.get(session_id)
        if found is None:
            sealer = Sealer(self._codec, LinkedCipher(session_id))
            found = self.ledgers[session_id] = Ledger(sealer, session_id)
        return found

    # --- at each statement of Postgres

    def carried(self, name: str, process: Process) -> None:
        """Look at every row after a statement that may have changed one."""
        if self.promises is not None:
            self.promises.carried(name)
        if name not in CHANGING or self.store is None:
            return
        for session_id, row in self.store.rows.items():
            ledger = self.ledger(session_id)
            if name == "create" and ledger.seq == 0:
                self.note(process.name, "created", session_id)
                self.wrote(ledger, row, self.store.events[session_id], process.name)
                if self.promises is not None:
                    self.promises.began(row)
            if row.epoch != ledger.epoch:
                self._claimed(ledger, row)
            ledger.owner, ledger.epoch = row.owner, row.epoch
            why = stranded(row)
            if why is not None:
                self.fail(f"{session_id} {why} (after {name} of {process.name})")

    def _claimed(self, ledger: Ledger, row: Row) -> None:
        self.note(row.owner, "claims", ledger.session_id, f"epoch {row.epoch}")
        if ledger.owner is not None and self._lives(ledger.owner):
            self.fail(f"{ledger.session_id} was taken from {ledger.owner}, whose lease holds")

    def _lives(self, worker: str) -> bool:
        assert self.store is not None
        return self.store.leases.get(worker, 0) > self.store.clock.now_us()

    def appended(self, entry: Append, row: Row, *, released: bool) -> None:
        """Check an append that was written."""
        ledger = self.ledger(entry.session_id)
        types = [event.type for event in entry.events]
        end = "released" if released else ""
        self.note(row.owner or ledger.owner, "append", entry.session_id, entry.head, *types, end)
        if entry.epoch != row.epoch:
            self.fail(f"{entry.session_id}: an owner of epoch {entry.epoch} wrote in {row.epoch}")
        before = ledger.status
        self.wrote(ledger, row, entry.events, ledger.owner or "")
        news = any(event.type in _NEW_TYPES for event in entry.events)
        if before not in {"active", "waiting"} and row.facts.status != before and not news:
            self.fail(f"{entry.session_id} went from {before} to {row.facts.status} of itself")

    def wrote(self, ledger: Ledger, row: Row, events: Sequence[SealedEvent], writer: str) -> None:
        """Check new events: dense, chained, and what each of them says."""
        for sealed in events:
            if sealed.seq != ledger.seq + 1:
                self.fail(f"{ledger.session_id}: event {sealed.seq} follows {ledger.seq}")
                return
            link = ledger.sealer.cipher.link(sealed.seq, sealed.v, sealed.payload, ledger.hash)
            if sealed.hash != link:
                self.fail(f"{ledger.session_id}: the chain breaks at {sealed.seq}")
            ledger.seq, ledger.hash = sealed.seq, sealed.hash
            ledger.told.append((self.now_s(), writer, row.epoch))
            event = ledger.sealer.open(sealed)
            if self.promises is not None:
                self.promises.happened(ledger.session_id, sealed, event)
            ledger.plain.append(ledger.sealer.cipher.open(sealed.payload, b"event:%d" % sealed.seq))
            self._says(ledger, event)
            ledger.state = evolve(ledger.state, event)
        ledger.status = row.facts.status
        self._fits(ledger, row)

    def _fits(self, ledger: Ledger, row: Row) -> None:
        """Compare the row with the fold of the journal."""
        if ledger.state is None:
            return
        facts, fold = row.facts, facts_of(ledger.state)
        shown = (facts.status, facts.phase, facts.turn, facts.stop_reason, facts.pending_kind)
        true = (fold.status, fold.phase, fold.turn, fold.stop_reason, fold.pending_kind)
        if shown != true or row.head != ledger.seq:
            self.fail(f"{ledger.session_id}: the row says {shown}, its journal {true}")

    def _says(self, ledger: Ledger, event: Event) -> None:
        match event.body:
            case TurnStarted() as body:
                self._turn_started(ledger, event, body)
            case TurnEnded():
                self._turn_ended(ledger, event)
            case ToolIntended() | ToolFinished() as body:
                self._call_says(ledger, body)
            case ApprovalDecided() as body:
                again = body.approval_id in ledger.decided
                self._once(again, ledger, f"{body.approval_id} was decided")
                ledger.decided.add(body.approval_id)
                if body.decision is Choice.EXPIRED:
                    self._lapsed(f"approval {body.approval_id}")
            case VerificationAsked() as body:
                self._asked(ledger, body)
            case MessageReceived() as body:
                again = body.text in ledger.messages and body.text not in self.repeated
                self._once(again, ledger, f"{body.text!r} was taken")
                ledger.messages[body.text] += 1
            case _:
                pass

    def _call_says(self, ledger: Ledger, body: ToolIntended | ToolFinished) -> None:
        if isinstance(body, ToolIntended):
            self._once(body.call_id in ledger.intended, ledger, f"{body.call_id} is intended")
            ledger.intended[body.call_id] = body.effect
        else:
            self._once(body.call_id in ledger.finished, ledger, f"{body.call_id} is finished")
            ledger.finished[body.call_id] = body.outcome

    def _asked(self, ledger: Ledger, body: VerificationAsked) -> None:
        for call_id in body.calls:
            if f"{ledger.session_id}:{call_id}" in self.under_way:
                self.fail(f"{call_id} is put to a person while its tool is still at it")

    def _once(self, again: bool, ledger: Ledger, what: str) -> None:  # noqa: FBT001 - a check
        if again:
            self.fail(f"{ledger.session_id}: {what} twice")

    def _turn_started(self, ledger: Ledger, event: Event, body: TurnStarted) -> None:
        if ledger.open_turn is not None:
            self.fail(f"{ledger.session_id}: turn {event.turn} starts in turn {ledger.open_turn}")
        ledger.open_turn = event.turn
        if body.continues is not None:
            ledger.continues[event.turn] = body.continues

    def _turn_ended(self, ledger: Ledger, event: Event) -> None:
        name = ledger.session_id
        if event.turn in ledger.ended:
            self.fail(f"{name}: turn {event.turn} ended twice")
        ledger.ended.add(event.turn)
        ledger.last_end = event.seq
        ledger.open_turn = None
        left = [c for c in ledger.intended if c not in ledger.finished]
        if left:
            self.fail(f"{name}: turn {event.turn} ended with open calls {left}")

    # --- when something leaves a process

    def sends(
        self,
        worker: str,
        session_id: str,
        *,
        call_id: str | None = None,
        request_seq: int | None = None,
    ) -> None:
        """Check that a request may go out: its intent is written, its sender owns the session."""
        assert self.store is not None
        ledger, row = self.ledger(session_id), self.store.rows[session_id]
        what = call_id or f"request {request_seq}"
        if call_id is not None and call_id not in ledger.intended:
            self.fail(f"{session_id}: {what} went out before its intent was written")
        if what in ledger.finished:
            # The end of a turn cuts what is in flight; of a `once` call it says: may have happened.
            once = ledger.intended.get(what) is EffectClass.ONCE
            if ledger.finished[what] not in (_UNKNOWN if once else _CUT):
                self.fail(f"{session_id}: {what} went out after its result was written")
            return
        if request_seq is not None and request_seq < ledger.last_end:
            return  # the end of the turn was committed, and cuts it as soon as its owner hears
        if request_seq is not None and request_seq > ledger.seq:
            self.fail(f"{session_id}: {what} went out before it was written")
        if row.owner != worker or not self._lives(worker):
            self.fail(f"{session_id}: {what} was sent by {worker}, the owner is {row.owner}")

    def won(self, what: str, times: int) -> None:
        """Note how many of those who decided the same thing were told that they did."""
        self.decided[what] += times
        if self.decided[what] > 1:
            self.fail(f"{self.decided[what]} were told that theirs is the {what}")
        self._answered_truly(what)

    def _lapsed(self, what: str) -> None:
        """Note that nobody decided in time."""
        self.lapsed.add(what)
        self._answered_truly(what)

    def _answered_truly(self, what: str) -> None:
        if what in self.lapsed and self.decided[what]:
            self.fail(f"somebody was told that theirs is the {what}, which lapsed")

    # --- what observers are told

    @override
    def observed(self, worker: str, events: Sequence[Event], after: State) -> None:
        seen = self.observed_until.setdefault(after.session_id, {})
        for event in events:
            seen[event.seq] = worker
        if after.seq > self.ledger(after.session_id).seq:
            self.fail(f"{after.session_id}: {worker} tells of {after.seq} before it is written")
        known = self.live.get(after.session_id)
        if known is None or known.seq <= after.seq:
            self.live[after.session_id] = after

    @override
    def logged(self, worker: str, event: str, fields: dict[str, object]) -> None:
        self.note(worker, "log", event, *(f"{k}={v}" for k, v in fields.items()))
        if event == "session.crashed" and fields["error"] not in PASSES:
            self.fail(f"a session crashed its driver: {fields['detail']}")


_UNKNOWN = frozenset({Outcome.UNKNOWN})
_CUT = frozenset({Outcome.UNKNOWN, Outcome.CANCELLED})
_NEW_TYPES = frozenset(body.TYPE for body in _NEWS)


def stranded(row: Row) -> str | None:
    """Return why nothing would ever happen to a session that is not at rest, or None."""
    if row.owner is not None or row.wake_us is not None:
        return None
    if row.inbox_head > row.inbox_seen:
        return "holds unseen messages and is not due"
    if row.timer_us is not None:
        return None
    if row.facts.status == "active":
        return "is active without owner, wake-up or timer"
    if row.facts.status == "waiting" and row.facts.pending_kind is None:
        return "waits for nothing"
    return None
