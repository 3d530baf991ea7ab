"""What is promised beside the sessions, looked at as it happens: deliveries, schedules, readers.

A webhook that wants an event has exactly one delivery of it, which reached its endpoint before it
is marked as delivered. A firing of a schedule has one session or one message. A session that is to
end with its readers does so when the last of them has left, and not while one is there.
"""

import json
from collections import Counter
from dataclasses import dataclass, field

from app.core.events import Event, SessionForked, TurnStarted
from app.core.lifecycle import StopReason
from app.runtime.ports.journal import SealedEvent
from app.runtime.sealing import METADATA_CONTEXT
from app.runtime.sessions.audience import GRACE_S
from app.runtime.side import deliveries
from app.runtime.side.firing import DUE_KEY, SCHEDULE_KEY
from app.runtime.side.schedule_records import Outcome, ScheduleRow, Spoken, open_target
from app.runtime.side.timing import Missed
from app.runtime.side.webhook_records import DeliveryStatus, WebhookDelivery
from app.runtime.telling import EVENTS
from app.runtime.times import rfc3339
from tests.fakes.row import Row
from tests.fakes.schedules import MemorySchedules
from tests.fakes.webhooks import MemoryWebhooks
from tests.simulation.audit import Audit
from tests.simulation.endpoints import Endpoints
from tests.simulation.loop import Process
from tests.simulation.small import LinkedCipher, PlainKeyring

END_US = 1 << 61


@dataclass(frozen=True)
class Left:
    """The last reader has left: where, and in which turn."""

    process: Process
    turn: int


@dataclass
class Promises:
    """Watches one run beside its audit, which tells it of new sessions and events."""

    audit: Audit
    hooks: MemoryWebhooks
    schedules: MemorySchedules
    endpoints: Endpoints
    wanted: set[tuple[str, str, int]] = field(default_factory=set)
    """The endpoint, session and number of each event that somebody wants to be told of."""
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Sessions by their schedule and the time they were due."""
    made: dict[str, ScheduleRow] = field(default_factory=dict)
    """Each schedule as it was first seen."""
    touched: set[str] = field(default_factory=set)
    """Schedules that their users changed, paused or removed."""
    barred: set[str] = field(default_factory=set)
    """Tasks that no session may begin with any more."""
    here: dict[str, list[tuple[Process, float]]] = field(default_factory=dict)
    """The readers of each session that is to end with them, and since when they are there."""
    left: dict[str, Left] = field(default_factory=dict)

    marked: list[str] = field(default_factory=list)
    """What was asked for under a key that a route keeps."""

    @property
    def any(self) -> bool:
        """Return whether side jobs have anything to do: looking for nothing costs time only."""
        return bool(self.hooks.hooks or self.schedules.rows)

    @property
    def counts(self) -> Counter[str]:
        """Return how often what was promised came up."""
        kept = Counter(f"delivery {one.status.value}" for one in self.hooks.kept.values())
        runs = [run for noted in self.schedules.noted.values() for run in noted.values()]
        kept.update(f"firing {run.outcome.value}" for run in runs)
        kept["attempt again"] = sum(one.attempts > 1 for one in self.hooks.kept.values())
        kept["effect under a route's key"] = len(self.marked)
        kept["schedule changed"] = len(self.barred)
        kept["turn without readers"] = len(self.left)
        return kept

    # --- what the audit tells

    def began(self, row: Row) -> None:
        """Look at a session that was just created."""
        if row.new.metadata is None:
            return
        plain = LinkedCipher(row.new.id).open(row.new.metadata, METADATA_CONTEXT)
        marks = json.loads(plain)
        firing = str(marks[SCHEDULE_KEY]), str(marks[DUE_KEY])
        self.fired[firing] += 1
        if self.fired[firing] > 1:
            self.audit.fail(f"the firing {firing} has made {self.fired[firing]} sessions")

    def happened(self, session_id: str, sealed: SealedEvent, event: Event) -> None:
        """Note who wants to be told of an event, at the moment of its commit."""
        body = event.body
        if isinstance(body, TurnStarted) and body.text in self.barred:
            self.audit.fail(f"{session_id}: a schedule says what it was told to say no more")
        if isinstance(body, SessionForked):  # what came before was told of where it happened
            self.wanted = {one for one in self.wanted if one[1] != session_id}
        name = sealed.type if sealed.type in EVENTS else sealed.told
        if name is not None:
            for hook in self.hooks.hooks.values():
                if hook.spec.enabled and name in hook.spec.events:
                    self.wanted.add((hook.id, session_id, sealed.seq))

    def carried(self, name: str) -> None:
        """Look at the tables beside the sessions after a statement."""
        if name == "schedules.create":
            self.made.update({i: r for i, r in self.schedules.rows.items() if i not in self.made})
        elif name == "webhooks.settle":
            self._settled()

    def _settled(self) -> None:
        for one in self.hooks.kept.values():
            if one.status is DeliveryStatus.DELIVERED and not self.endpoints.taken[one.id]:
                self.audit.fail(f"{one.id} is marked as delivered and reached nobody")
            early = one.attempts <= len(deliveries.RETRY_S)
            gone = self.hooks.hooks[one.webhook_id].disabled_reason is not None
            if one.status is DeliveryStatus.DEAD and early and not gone:
                self.audit.fail(f"{one.id} is dead after {one.attempts} attempts")

    # --- readers of sessions that are to end with them

    def came(self, session_id: str, process: Process) -> tuple[Process, float]:
        """Note a reader who begins to read."""
        seat = process, self.audit.now_s()
        self.here.setdefault(session_id, []).append(seat)
        self.left.pop(session_id, None)
        return seat

    def went(self, session_id: str, seat: tuple[Process, float], *, early: bool) -> None:
        """Note a reader who reads no more; the last one leaves the turn to be cancelled."""
        seats = self.here[session_id]
        seats.remove(seat)
        turn = self.audit.ledger(session_id).open_turn
        if early and turn is not None and not self._present(session_id):
            self.left[session_id] = Left(seat[0], turn)

    def _present(self, session_id: str) -> list[tuple[Process, float]]:
        return [seat for seat in self.here.get(session_id, ()) if seat[0].alive]

    def cancels(self, session_id: str, process: Process) -> None:
        """Check that a session which is cancelled for want of readers has none."""
        self.audit.note(process.name, "has no readers", session_id)
        early_s = self.audit.now_s() - GRACE_S
        if any(since_s <= early_s for _, since_s in self._present(session_id)):
            self.audit.fail(f"{session_id} is cancelled though somebody reads it")

    # --- the end

    def owed(self) -> list[str]:
        """Return what is still to be done once nothing fails any more."""
        return [
            *(f"{i} has a firing to make" for i, r in self.schedules.rows.items() if _fires(r)),
            *(f"{one.id} is not sent" for one in self.hooks.kept.values() if self._unsent(one)),
            *(
                f"{i} has no readers and turn {one.turn} goes on"
                for i, one in self.left.items()
                if one.process.alive and one.turn not in self.audit.ledger(i).ended
            ),
        ]

    def _unsent(self, one: WebhookDelivery) -> bool:
        hook = self.hooks.hooks[one.webhook_id]
        return one.status is DeliveryStatus.PENDING and hook.spec.enabled

    def last_look(self) -> None:
        """What can only be said of a whole run."""
        kept = Counter((d.webhook_id, d.session_id, d.seq) for d in self.hooks.kept.values())
        if kept != Counter(self.wanted):
            missing, extra = Counter(self.wanted) - kept, kept - Counter(self.wanted)
            self.audit.fail(f"deliveries that are missing: {[*missing]}, beyond: {[*extra]}")
        for row in self.made.values():
            if row.id not in self.touched:
                self._all_fired(row)

    def _all_fired(self, row: ScheduleRow) -> None:
        """Compare what a schedule that nobody touched was to do with what it did."""
        runs, ticks = (
            self.schedules.noted.get(row.id, {}),
            row.timing.latest(row.next_us or 0, END_US, 100),
        )
        passing = False
        for due_us in ticks:
            run = runs.get(due_us)
            passing = run.outcome is Outcome.SKIPPED if run is not None else passing
            if passing and (row.missed is Missed.ALL or due_us == ticks[-1]):
                self.audit.fail(f"{row.id} left out its firing of {due_us}")
            if run is None and not passing:
                self.audit.fail(f"{row.id} never made its firing of {due_us}")
        dues = [run.due_us for run in runs.values() if run.outcome is Outcome.FIRED]
        if row.session_id is None:
            firings = [(row.id, rfc3339(due_us)) for due_us in dues]
            sessions = [one for one in self.fired if one[0] == row.id]
            if sorted(firings) != sorted(sessions):
                self.audit.fail(f"{row.id} notes {firings}, there are {sessions}")
        else:
            self._messages(row.session_id, row, len(dues))

    def _messages(self, session_id: str, row: ScheduleRow, wanted: int) -> None:
        ledger = self.audit.ledger(session_id)
        ended = ledger.state.ended if ledger.state is not None else None
        barred = ended is not None and ended.reason is StopReason.SECURITY
        target = open_target(PlainKeyring(), row)
        said = ledger.messages[target.text] if isinstance(target, Spoken) else 0
        if said > wanted or (said < wanted and not barred):
            self.audit.fail(f"{row.id} has spoken {said} times, {wanted} firings are noted")


def _fires(row: ScheduleRow) -> bool:
    return row.next_us is not None and not row.paused
