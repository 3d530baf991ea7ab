"""The invariants that need the content: what a fold sees that no statement does; and the rounds."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from app.core.events import Event, ToolFinished, TurnEnded
from app.core.evolve import fold
from app.core.lifecycle import StopReason
from app.core.state import State
from app.runtime.errors import StoreUnavailable
from app.runtime.explaining.auditor import Auditor
from app.runtime.explaining.checkup import Checkup, Reading, Survey
from app.runtime.explaining.findings import ADVICE, Finding, Invariant
from app.runtime.explaining.ports import AuditStore, Chains
from app.runtime.ports.journal import Facts, JournalStore
from app.runtime.views import facts_of
from tests.core.machine_kit import ONCE, Machine, call
from tests.fakes.clock import LoopClock
from tests.fakes.observer import RecordingObserver


def read(events: list[Event], told: Facts | None = None) -> list[Finding]:
    reading = Reading("ses_1")
    reading.take(events[:2])
    reading.take(events[2:])
    reading.compare(told or facts_of(state_of(events)))
    return reading.findings


def state_of(events: list[Event]) -> State:
    state = fold(events)
    assert state is not None
    return state


def a_turn() -> Machine:
    session = Machine()
    session.answer(call("pay", effect=ONCE), call("search"))
    session.ok("search")
    session.ok("pay")
    session.answer(text="done")
    return session


def renumbered(events: list[Event]) -> list[Event]:
    return [replace(event, seq=n) for n, event in enumerate(events, 1)]


@pytest.mark.req("STATE-10")
def test_a_call_that_was_open_when_its_turn_ended_is_found() -> None:
    events = a_turn().events
    assert read(events) == []
    lost = next(n for n, e in enumerate(events) if isinstance(e.body, ToolFinished))
    (found,) = read(renumbered([*events[:lost], *events[lost + 1 :]]))
    assert (found.invariant, found.seq) == (Invariant.CALLS, len(events) - 1)
    assert "t1_c1_2" in found.detail


def test_a_history_that_providers_refuse_is_found() -> None:
    events = a_turn().events
    moves = [n for n, e in enumerate(events) if "phase.entered" in e.body.TYPE]
    reflect = next(n for n in moves if getattr(events[n].body, "source", "") == "ACT")
    found = read(renumbered([*events[:reflect], *events[reflect + 1 :]]))
    assert {one.invariant for one in found} == {Invariant.CALLS}


def test_whoever_gave_a_session_up_could_not_close_its_calls_and_knew_no_fold() -> None:
    session = Machine()
    session.answer(call("pay", effect=ONCE))
    cancelled = Machine()
    cancelled.answer(call("pay", effect=ONCE))
    cancelled.cancel()
    end = cancelled.events[-1]
    assert isinstance(end.body, TurnEnded)
    body = replace(end.body, stop_reason=StopReason.UNRECOVERABLE_ERROR)
    events = [*session.events, replace(end, seq=len(session.events) + 1, body=body)]
    wrong = replace(facts_of(state_of(events)), status="failed", turn=7)
    assert read(events, wrong) == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"status": "active"}, True),
        ({"turn": 2}, True),
        ({"tools": ()}, True),
        ({"usage": '{"input_tokens": 1}'}, True),
        ({"usage": "{}"}, False),  # of a release that knew none of them
        ({"ended_at_us": 5}, False),  # written anew by a claim that found nothing to do
        ({"ended_at_us": None}, True),
    ],
)
def test_facts_that_are_not_those_of_the_journal_are_found(
    change: dict[str, object], *, wrong: bool
) -> None:
    session = a_turn()
    told = replace(facts_of(session.state), **change)  # type: ignore[arg-type]
    found = read(session.events, told)
    assert [one.invariant for one in found] == ([Invariant.FACTS] if wrong else [])
    assert all(name in one.detail for one in found for name in change)


def test_nothing_is_compared_with_nothing() -> None:
    reading = Reading("ses_1")
    reading.compare(facts_of(a_turn().state))
    assert reading.findings == []


def test_each_invariant_says_what_to_do() -> None:
    assert set(ADVICE) == set(Invariant)
    for invariant in Invariant:
        shown = Finding("ses_1", invariant, "it is so", 3).shown()
        assert (shown["session"], shown["seq"], shown["detail"]) == ("ses_1", 3, "it is so")
        assert "{id}" not in str(shown["todo"])


class Away:
    """A database that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    async def suspects(self) -> list[Finding]:
        self.asked += 1
        raise StoreUnavailable("away")


async def test_the_auditor_outlives_an_outage_and_can_be_turned_off() -> None:
    away, observer = Away(), RecordingObserver()
    auditor = Auditor(
        clock=LoopClock(),
        audit=cast("AuditStore", away),
        observer=observer,
        every_s=60,
        tell=lambda _: None,
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await auditor.run()
    assert 6 <= away.asked <= 20
    assert {name for name, _ in observer.lines} == {"audit.failed"}
    auditor.every_s = 0
    await auditor.run()


class Moving:
    """Sessions in motion: what one look sees the next does not, but for one of them."""

    def __init__(self) -> None:
        self.looks = 0

    async def after(self, session_id: str, limit: int) -> list[str]:
        del limit
        return [] if session_id else ["ses_1", "ses_2"]

    async def check(self, ids: list[str], events: int) -> list[Finding]:
        del events
        self.looks += 1
        now = Invariant.HEAD if self.looks == 1 else Invariant.DENSE
        seen = [Finding("ses_1", now, "a moment ago"), Finding("ses_2", Invariant.OWNED, "still")]
        return [one for one in seen if one.session_id in ids]

    async def row(self, session_id: str) -> None:
        del session_id


async def test_what_a_survey_finds_is_told_only_if_it_is_still_so() -> None:
    looks = Checkup(
        audit=cast("AuditStore", Moving()),
        chains=cast("Chains", None),
        journal=cast("JournalStore", None),
    )
    survey = Survey(checkup=looks, clock=LoopClock())
    told = [finding async for finding in survey.all()]
    assert [(one.session_id, one.invariant) for one in told] == [("ses_2", Invariant.OWNED)]
    assert survey.tally.sessions == 2
