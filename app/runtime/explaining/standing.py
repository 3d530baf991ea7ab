"""How a session stands now: what it does or waits for, what wakes it, what a person can do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from app.core.canonical import as_text
from app.core.effects import CallModel, CallTool, CheckStatus, Effect, PrepareTurn
from app.core.lifecycle import PendingKind, Ruling, Status, Verb, rule
from app.core.plan import in_doubt, owed, resting
from app.core.state import Doubt, OpenCall, Pending, State
from app.core.windows import still_unknown
from app.runtime.execution.poison import MOST_CLAIMS
from app.runtime.explaining.findings import ADVICE, Invariant
from app.runtime.ports.sessions import SessionRow
from app.runtime.times import to_time

_ARGUMENTS_CHARS: Final = 200
_UNKNOWN_TOLD: Final = 10


def moment(at_us: int) -> str:
    """Return a time as people read it, in UTC."""
    return to_time(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def brief(text: str, most: int) -> str:
    """Return a text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside the journal; `closed` says why that cannot be read, if so."""

    row: SessionRow
    now_us: int
    workers_alive: bool
    closed: str | None = None


@dataclass(slots=True)
class Standing:
    """What is said of a session's present, sorted by what it answers."""

    doing: list[str] = field(default_factory=list)
    """What it does or waits for."""
    wakes: list[str] = field(default_factory=list)
    """What makes it go on."""
    uncertain: list[str] = field(default_factory=list)
    """Which effects nobody knows of."""
    todo: list[str] = field(default_factory=list)
    """What a person can do."""

    def sentences(self) -> Iterator[str]:
        """Return all of it in order."""
        yield from (*self.doing, *self.uncertain, *self.wakes, *self.todo)


def stands(state: State | None, known: Known) -> Standing:
    """Return how a session stands, as far as it can be seen."""
    standing = Standing()
    row = known.row
    if known.closed is not None:
        facts = row.facts
        standing.doing.append(
            f"{known.closed} Its row alone says: {row.status}, turn {facts.turn}, step "
            f"{facts.step}, stop reason {facts.stop_reason}."
        )
    _ownership(standing, known)
    if state is not None and known.closed is None:
        _doubts(standing, state, known)
        _unknown(standing, state)
        _work(standing, state, known)
    elif row.status is Status.WAITING and row.pending_kind is not None:
        _to_do(standing, row, row.pending_kind)
    if not row.inbox_drained:
        count = row.inbox_head - row.inbox_seen
        many = "1 request in its inbox was" if count == 1 else f"{count} requests in its inbox were"
        standing.doing.append(f"{many} not taken yet.")
    if row.claims > 1:
        standing.doing.append(
            f"It was claimed {row.claims} times running without an answer to an effect; at more "
            f"than {MOST_CLAIMS} it is given up."
        )
    _ways(standing, row)
    return standing


def _ownership(standing: Standing, known: Known) -> None:
    row = known.row
    if row.owner is not None and row.owner_alive:
        standing.doing.append(f"Worker {row.owner} owns it under epoch {row.epoch}.")
        return
    if row.owner is not None:
        standing.doing.append(
            f"Its owner {row.owner} (epoch {row.epoch}) lost its lease: it was killed, stopped, or "
            "cut off from the database."
        )
        _awaits_worker(standing, known, "A living worker takes it over within about two seconds.")
    elif row.waking:
        standing.doing.append("Nobody owns it; it is due.")
        _awaits_worker(
            standing,
            known,
            "The next free worker that has its master key and knows its events takes it.",
        )
    elif row.timer_at_us is not None:
        until = "" if row.status is Status.WAITING else " until its time comes"
        standing.doing.append(f"Nobody owns it, and nobody needs to{until}.")
        standing.wakes.append(f"A timer wakes it on {moment(row.timer_at_us)}.")
    elif _is_stuck(row):
        standing.doing.append(
            "Nobody owns it, no time is set for it, and it waits for nobody: it is stuck."
        )
        standing.todo.append(ADVICE[Invariant.OWNED].replace("{id}", row.id))
    else:
        standing.doing.append("Nobody owns it, and nobody needs to.")


def _awaits_worker(standing: Standing, known: Known, usual: str) -> None:
    if known.workers_alive:
        standing.wakes.append(usual)
    else:
        standing.wakes.append("No worker is alive.")
        standing.todo.append("Start a worker: `surefoot serve --role worker`.")


def _is_stuck(row: SessionRow) -> bool:
    waits = row.facts.status == "waiting" and row.facts.pending_kind is not None
    at_rest = row.facts.status not in {"active", "waiting"} or waits
    return not at_rest or not row.inbox_drained


def _doubts(standing: Standing, state: State, known: Known) -> None:
    for open_call in in_doubt(state):
        call, doubt = open_call.call, open_call.doubt or Doubt(state.at_us)
        why = "its owner was lost" if doubt.lost else "it failed after it was sent,"
        standing.uncertain.append(
            f"Nobody knows whether {_call(open_call)} happened: {why} on {moment(doubt.since_us)} "
            f"while it was in flight, and a `{call.effect}` call is never sent twice."
        )
        if state.pending is None:
            rest = resting(state)
            if rest is not None and rest.timer_us is not None:
                asked = "the tool" if call.checkable else "a person"
                standing.wakes.append(
                    f"Until {moment(rest.timer_us)} its former owner could still get the answer; "
                    f"then {asked} is asked."
                )
        elif not owed(state):
            standing.todo.append(
                f"Find out at the tool, and say it: `surefoot verify {known.row.id} "
                f"{call.call_id} happened` (or `did_not_happen`), or "
                f"POST /v1/sessions/{known.row.id}/verifications."
            )


def _unknown(standing: Standing, state: State) -> None:
    """Tell of calls that were closed without anybody knowing what they did."""
    unknown = still_unknown(state.once_done)
    for action in unknown[-_UNKNOWN_TOLD:]:
        standing.uncertain.append(
            f"Nobody knows whether the call {action.call_id} of {action.tool} happened. The same "
            "call is made again only when a person approves it."
        )
    if unknown:
        standing.todo.append(
            "Look at the tool's side whether these calls happened, and tell the session with a "
            "message; an approval of such a call has the reason `unknown_outcome`."
        )


def _call(open_call: OpenCall) -> str:
    arguments = brief(as_text(open_call.call.arguments or {}), _ARGUMENTS_CHARS)
    return f"{open_call.call.name} {arguments} ({open_call.call.call_id})"


def _work(standing: Standing, state: State, known: Known) -> None:
    if state.pending is not None:
        for kind, calls in _awaited(state, state.pending):
            said = WAITS.get(kind, f"It waits: {kind.value}.")
            named = f" ({', '.join(calls)})" if calls else ""
            standing.doing.append(f"{said.rstrip('.')}{named}.")
            _to_do(standing, known.row, kind)
        return
    if state.stopping is not None and not state.between_turns:
        standing.doing.append(f"A guard stops the turn: {state.stopping.value}.")
    for effect in owed(state):
        standing.doing.append(_effect(effect, state, known.now_us))


def _awaited(state: State, pending: Pending) -> Iterator[tuple[PendingKind, Sequence[str]]]:
    """Yield everything that a session waits for: a step may have calls of several kinds."""
    of_kind = {
        PendingKind.VERIFICATION: [c for c in state.calls if c.in_doubt],
        PendingKind.APPROVAL: [c for c in state.calls if c.unapproved],
        PendingKind.CLIENT_TOOLS: [c for c in state.calls if c.with_client],
    }
    if pending.kind not in of_kind:
        yield pending.kind, pending.calls
    for kind, calls in of_kind.items():
        if calls:
            yield kind, [c.call.call_id for c in calls]


def _effect(effect: Effect, state: State, now_us: int) -> str:
    match effect:
        case PrepareTurn():
            return "The next turn is about to begin."
        case CallModel():
            asked = state.request.at_us if state.request is not None else state.at_us
            what = f"It owes the model's answer, asked for on {moment(asked)}"
            return what + _attempt(effect, now_us)
        case CallTool():
            found = next(c for c in state.calls if c.call.call_id == effect.call.call_id)
            what = (
                f"It owes the result of {_call(found)}, which is "
                f"`{effect.call.effect}`, intended on {moment(found.intended_at_us)}"
            )
            return what + _attempt(effect, now_us)
        case CheckStatus():
            what = f"It asks the tool what became of {effect.call.call_id}"
            return what + _attempt(effect, now_us)
        case _:
            assert_never(effect)


def _attempt(effect: CallModel | CallTool | CheckStatus, now_us: int) -> str:
    again = f", attempt {effect.attempt}" if effect.attempt > 1 else ""
    later = effect.not_before_us > now_us
    return again + (f", to be tried again on {moment(effect.not_before_us)}." if later else ".")


WAITS: Final[Mapping[PendingKind, str]] = {
    PendingKind.INPUT: "It waits for an answer to its question: the next message is one",
    PendingKind.ESCALATION: "It waits for a person to whom it was escalated: the next message goes",
    PendingKind.VERIFICATION: "It waits for a person to say what became of its calls in doubt",
    PendingKind.APPROVAL: "It waits for a decision on calls that need approval",
    PendingKind.CLIENT_TOOLS: "It waits for results of calls which the client carries out",
}
"""What a session waits for, in words."""

_WHAT_TO_DO: Final[Mapping[PendingKind, str]] = {
    PendingKind.INPUT: "Answer with POST /v1/sessions/{id}/messages.",
    PendingKind.ESCALATION: "Answer with POST /v1/sessions/{id}/messages.",
    PendingKind.APPROVAL: "Decide them: GET /v1/approvals?session={id} lists them.",
    PendingKind.CLIENT_TOOLS: "Send the results with POST /v1/sessions/{id}/tool_results.",
}


def _to_do(standing: Standing, row: SessionRow, kind: PendingKind) -> None:
    """Say what a person can do about something that a session waits for."""
    todo = _WHAT_TO_DO.get(kind)
    if todo is not None and row.status is Status.WAITING:
        standing.todo.append(todo.replace("{id}", row.id))


def _ways(standing: Standing, row: SessionRow) -> None:
    """Say how to go on from here, by the table of statuses and verbs."""
    ended = _ENDED.get(row.status)
    if not row.key.wrapped:
        standing.todo.append("It takes nothing any more: create another session.")
    elif ended is not None:
        ended(standing, row)


def _closed(standing: Standing, _row: SessionRow) -> None:
    standing.doing.append("It is closed: no turn will follow.")
    standing.todo.append("Create another session to go on.")


def _over(standing: Standing, row: SessionRow) -> None:
    reason = row.stop_reason
    resume = rule(Verb.RESUME, row.status, reason=reason)
    if resume is Ruling.ONLY_WITH_LIMITS:
        standing.todo.append(
            f"It goes on where it stopped with `surefoot resume {row.id}` and a higher limit for "
            f"what stopped it ({reason}); a message starts the next turn instead."
        )
    elif resume is Ruling.ACCEPT:
        standing.todo.append(
            f"Once the cause is mended it goes on with `surefoot resume {row.id}`; a message "
            "starts the next turn instead."
        )
    elif rule(Verb.MESSAGE, row.status, reason=reason) is Ruling.CONFLICT:
        standing.todo.append("It takes no message any more: create another session.")
    else:
        standing.todo.append("A message starts its next turn.")


_ENDED: Final[Mapping[Status, Callable[[Standing, SessionRow], None]]] = {
    Status.CLOSED: _closed,
    Status.COMPLETED: _over,
    Status.CANCELLED: _over,
    Status.STOPPED: _over,
    Status.FAILED: _over,
}
