"""Why a session is as it is, in sentences: from its journal and its row, and from nothing else.

`Story` gathers what happened while the journal is read; `standing` says how things
stand now and what can be done.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.core.events import (
    ApprovalDecided,
    Choice,
    Event,
    GuardTripped,
    ModelAnswered,
    ModelFailed,
    SecurityFlagged,
    SessionClaimed,
    SessionCreated,
    SessionForked,
    SessionInterrupted,
    ToolFinished,
    TurnEnded,
    TurnStarted,
    VerificationDecided,
)
from app.core.evolve import evolve
from app.core.plan import resting
from app.core.state import State
from app.runtime.explaining.standing import Known, Standing, brief, moment, stands

_TURNS_TOLD: Final = 5
_OWNERS_TOLD: Final = 8
_TEXT_CHARS: Final = 80


@dataclass(slots=True)
class _Turn:
    """What became of one turn."""

    number: int
    at_us: int
    text: str
    continues: int | None
    models: int = 0
    failures: list[str] = field(default_factory=list)
    tools: Counter[tuple[str, str]] = field(default_factory=Counter)
    guards: list[GuardTripped] = field(default_factory=list)
    decided: list[ApprovalDecided | VerificationDecided] = field(default_factory=list)
    flagged: list[SecurityFlagged] = field(default_factory=list)
    ended: TurnEnded | None = None
    ended_us: int = 0


@dataclass(frozen=True, slots=True)
class _Owner:
    """One claim; `lost` when its session was in the middle of something when the next one came."""

    worker: str
    epoch: int
    at_us: int
    turn: int
    step: int
    took_over: bool
    doubts: tuple[str, ...] = ()


@dataclass(slots=True)
class Story:
    """Takes a journal page by page and keeps what is worth telling."""

    state: State | None = None
    created: Event | None = None
    turns: list[_Turn] = field(default_factory=list)
    owners: list[_Owner] = field(default_factory=list)
    forked_at: int = 0
    _early: list[GuardTripped] = field(default_factory=list)

    def take(self, events: Sequence[Event]) -> None:
        """Take the next events.

        Raises:
            BrokenJournalError: when they do not follow one another.

        """
        for event in events:
            before, self.state = self.state, evolve(self.state, event)
            self._note(event, before)

    def _note(self, event: Event, before: State | None) -> None:
        body = event.body
        match body:
            case SessionCreated():
                self.created = event
            case TurnStarted():
                turn = _Turn(event.turn, event.at_us, body.text, body.continues)
                turn.guards += self._early
                self._early = []
                self.turns.append(turn)
            case GuardTripped() if before is not None and before.between_turns:
                self._early.append(body)
            case SessionClaimed():
                busy = before is not None and bool(self.owners) and resting(before) is None
                owner = _Owner(body.worker, body.epoch, event.at_us, event.turn, event.step, busy)
                self.owners.append(owner)
            case SessionForked():
                self.owners = []  # whoever owned the other session never owned this one
                self.forked_at = body.at_seq
            case SessionInterrupted() if self.owners:
                self.owners[-1] = replace(self.owners[-1], took_over=True, doubts=body.calls)
            case _ if self.turns:
                _count(self.turns[-1], event)
            case _:
                pass


def _count(turn: _Turn, event: Event) -> None:
    body = event.body
    match body:
        case ModelAnswered():
            turn.models += 1
        case ModelFailed():
            turn.failures.append(body.error.message)
        case ToolFinished():
            turn.tools[body.name, body.outcome.value] += 1
        case GuardTripped():
            turn.guards.append(body)
        case SecurityFlagged():
            turn.flagged.append(body)
        case ApprovalDecided() | VerificationDecided():
            turn.decided.append(body)
        case TurnEnded():
            turn.ended, turn.ended_us = body, event.at_us
        case _:
            pass


def explained(story: Story, known: Known) -> dict[str, object]:
    """Return the explanation: every sentence in order, and what they say in fields."""
    standing = stands(story.state, known)
    sentences = [*_origin(story), *_turns(story), *_owners(story), *standing.sentences()]
    return {
        "object": "explanation",
        "session": known.row.id,
        "status": known.row.status.value,
        "last_seq": known.row.head,
        "sentences": sentences,
        **_fields(story, known, standing),
    }


def _fields(story: Story, known: Known, standing: Standing) -> dict[str, object]:
    row = known.row
    return {
        "owner": row.owner,
        "owner_alive": row.owner_alive,
        "epoch": row.epoch,
        "owners": [
            {"worker": o.worker, "epoch": o.epoch, "at": moment(o.at_us), "took_over": o.took_over}
            for o in story.owners[-_OWNERS_TOLD:]
        ],
        "doing": standing.doing,
        "wakes": standing.wakes,
        "uncertain": standing.uncertain,
        "todo": standing.todo,
    }


def _origin(story: Story) -> Iterator[str]:
    if story.created is None or not isinstance(story.created.body, SessionCreated):
        return
    body = story.created.body
    came = f" as a fork of {body.parent}" if body.parent else ""
    came += f" at its event {story.forked_at}" if story.forked_at else ""
    yield (
        f"It was created on {moment(story.created.at_us)}{came}, for the agent {body.agent} "
        f"version {body.agent_version} with the model {body.model.name}."
    )


def _turns(story: Story) -> Iterator[str]:
    earlier = story.turns[:-_TURNS_TOLD]
    if earlier:
        ends = Counter(t.ended.status.value for t in earlier if t.ended is not None)
        parts = ", ".join(f"{count} {status}" for status, count in ends.most_common())
        yield f"{len(earlier)} earlier turns ended: {parts}."
    for turn in story.turns[-_TURNS_TOLD:]:
        yield " ".join(part for part in (_beginning(turn), _middle(turn), _end(turn)) if part)


def _beginning(turn: _Turn) -> str:
    if turn.continues is not None:
        return f"Turn {turn.number} went on with turn {turn.continues} on {moment(turn.at_us)}."
    said = brief(turn.text, _TEXT_CHARS)
    return f"Turn {turn.number} began on {moment(turn.at_us)} with “{said}”."


def _middle(turn: _Turn) -> str:
    parts = [f"the model answered {_times(turn.models)}"] if turn.models else []
    if turn.failures:
        last = brief(turn.failures[-1], _TEXT_CHARS)
        parts.append(f"{_times(len(turn.failures))} an attempt at the model failed, last: {last}")
    if turn.tools:
        calls = (f"{n} {o} {c}x" if c > 1 else f"{n} {o}" for (n, o), c in turn.tools.items())
        parts.append(f"tools: {', '.join(calls)}")
    parts += [f"the {flag.guard} guard stopped {flag.call_id}" for flag in turn.flagged]
    parts += [_decision(decided) for decided in turn.decided]
    if not parts:
        return ""
    told = "; ".join(parts)
    return f"{told[0].upper()}{told[1:]}."


def _decision(decided: ApprovalDecided | VerificationDecided) -> str:
    call = decided.call_id
    if isinstance(decided, VerificationDecided):
        who = "the tool, asked about it," if decided.by == "status_check" else "a person"
        return f"{who} said that {call} {'happened' if decided.happened else 'did not happen'}"
    if decided.decision is Choice.EXPIRED:
        return f"nobody decided on {call} in time"
    if decided.decision is Choice.DENY:
        return f"a person denied {call}"
    changed = "" if decided.arguments is None else " with changed arguments"
    return f"a person approved {call}{changed}"


def _end(turn: _Turn) -> str:
    ended = turn.ended
    if ended is None:
        return "It has not ended."
    guard = next((g for g in reversed(turn.guards) if g.stop_reason is ended.stop_reason), None)
    why = f": {guard.detail}" if guard is not None else ""
    if ended.error is not None:
        why = f": {ended.error.message.rstrip('.')}"
    return f"It ended on {moment(turn.ended_us)} as {ended.status} ({ended.stop_reason}){why}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _owners(story: Story) -> Iterator[str]:
    owners = story.owners
    if len(owners) > _OWNERS_TOLD:
        yield f"It was claimed {len(owners)} times; the last {_OWNERS_TOLD} are told here."
    shown = list(enumerate(owners))[-_OWNERS_TOLD:]
    for index, owner in shown:
        before = owners[index - 1] if index else None
        yield _owned(owner, before)


def _owned(owner: _Owner, before: _Owner | None) -> str:
    when = f"on {moment(owner.at_us)} under epoch {owner.epoch}"
    if before is None or not owner.took_over:
        return f"Worker {owner.worker} took it {when}."
    how = (
        f"Worker {owner.worker} took it over {when}, in turn {owner.turn}, step {owner.step}: "
        f"{before.worker} had lost it (its lease ran out) or handed it over in a drain."
    )
    between = owner.epoch - before.epoch - 1
    if between > 0:
        how += f" Between them it was claimed {_times(between)} by owners who wrote nothing."
    if owner.doubts:
        how += (
            f" In flight at that moment, and so of unknown outcome: {', '.join(owner.doubts)}; "
            "such a call is not sent again."
        )
    return how
