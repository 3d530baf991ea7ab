"""The live picture on a terminal, and the words for rarer events."""

import io

import pytest
from rich.console import Console

from app.cli import stream
from app.cli.lines import Narrator
from app.cli.stream import Cut, Journaled
from app.cli.views import LiveView
from tests.cli.conftest import Surefoot
from tests.cli.events import Journal, golden, until_answer
from tests.cli.fake_service import Delta, FakeService


def picture(view: LiveView) -> str:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as captured:
        console.print(view.render())
    return captured.get()


@pytest.fixture
def view() -> LiveView:
    return LiveView(Console(file=io.StringIO(), force_terminal=True, width=100))


def test_text_shows_as_it_comes_and_goes_when_the_answer_is_whole(view: LiveView) -> None:
    events = until_answer().events
    for event in events[:4]:
        view.show(Journaled(event))
    for piece in ("You ", "pay\n", "189"):
        view.show(stream.Delta(piece))
    assert "You pay\n189" in picture(view)
    assert "THINK · step 1" in picture(view)
    for event in events[4:6]:
        view.show(Journaled(event))
    assert "189" not in picture(view)
    assert "138 tokens" in picture(view)


def test_a_call_shows_while_it_runs(view: LiveView) -> None:
    events = until_answer().events
    for event in events[:8]:
        view.show(Journaled(event))
    assert "▸ calculate" in picture(view)
    view.show(Journaled(events[8]))
    assert "▸ calculate" not in picture(view)


def test_half_a_text_goes_when_the_stream_breaks(view: LiveView) -> None:
    view.show(stream.Delta("half"))
    view.show(Cut("reset"))
    assert "half" not in picture(view)


def test_long_text_shows_its_end(view: LiveView) -> None:
    view.show(stream.Delta("\n".join(f"line {n}" for n in range(100))))
    assert "line 99" in picture(view)
    assert "line 50" not in picture(view)


async def test_on_a_terminal_a_run_is_shown_live(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    events = golden()
    service.streams = [[*events[:16], Delta("You pay "), *events[16:]]]
    service.session = {"status": "completed", "trace_url": "http://jaeger/trace/1"}
    ran = await surefoot("run", "Pay", "--follow")
    assert ran.code == 0
    assert "\x1b[" in ran.out
    assert "http://jaeger/trace/1" in ran.out


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("tool.attempted", {"call_id": "c", "attempt": 2, "error": {"kind": "timeout"}}, "timeout"),
        ("model.failed", {"attempt": 1, "retry_at_us": 5, "error": {"message": "x"}}, "again"),
        ("guard.tripped", {"guard": "max_repeat", "detail": "twice"}, "warns the model"),
        ("message.received", {"text": "And tax?"}, "And tax?"),
        ("verification.requested", {"calls": ["c"]}, 'verification.requested {"calls":["c"]}'),
        ("tool.finished", {"call_id": "c", "outcome": "unknown", "attempts": 3}, "3 attempts"),
        ("of.the.future", {"new": 1}, "of.the.future"),
        ("message.received", {"text": "Stop", "policy": "interrupt"}, "interrupts: Stop"),
        ("message.received", {"text": "In French", "policy": "steer"}, "steers this turn: In Fre"),
        (
            "approval.requested",
            {"name": "pay", "arguments": {"n": 5}, "approval_id": "apr_1", "expires_at_us": 10**6},
            'pay {"n":5} needs an approval: apr_1, until 1970-01-01T00:00:01Z',
        ),
        ("approval.requested", {"expires_at_us": 2**100}, f"until {2**100}"),
        (
            "approval.decided",
            {"call_id": "c", "decision": "approve", "arguments": {"n": 4}, "by": "Ada"},
            'c approved with {"n":4} by Ada',
        ),
        ("approval.decided", {"decision": "deny", "message": "too much"}, "denied: too much"),
        ("approval.decided", {"decision": "expired"}, "not decided in time"),
        (
            "tool.checked",
            {"call_id": "c", "attempt": 0, "fault": {"kind": "timeout"}, "retry_at_us": 5},
            "c may have happened (timeout), not asked; it will be asked",
        ),
        (
            "tool.checked",
            {"call_id": "c", "attempt": 1, "retry_at_us": 5},
            "asked once; it will be",
        ),
        ("tool.checked", {"call_id": "c", "attempt": 3}, "asked 3 times"),
        ("verification.decided", {"call_id": "c", "happened": True}, "c happened, says a person"),
        (
            "verification.decided",
            {"call_id": "c", "happened": False, "by": "status_check"},
            "c did not happen, says its status check",
        ),
        (
            "session.forked",
            {"parent": "ses_0", "at_seq": 7, "model": "m1"},
            "from ses_0 after event 7 · the model there: m1",
        ),
        ("model.answered", {"usage": {"cached_tokens": 7}}, "7 cached"),
    ],
)
def test_every_type_has_its_words(kind: str, data: dict[str, object], words: str) -> None:
    journal = Journal()
    journal.add(kind, **data)
    line = Narrator().line(journal.events[0])
    assert line is not None
    assert words in line.plain


def test_a_call_of_the_callers_own_tool_is_told_as_that() -> None:
    journal, narrator = Journal(), Narrator()
    asked = [{"call_id": "c1", "name": "ask_device", "client": True}]
    journal.add("model.answered", tool_calls=asked)
    journal.add("tool.intended", call_id="c1", name="ask_device", arguments={})
    _, line = (narrator.line(event) for event in journal.events)
    assert line is not None
    assert "ask_device {} · for the caller to carry out" in line.plain


def test_a_malformed_event_is_no_traceback() -> None:
    narrator = Narrator()
    wrong: list[object] = [None, [], "text", {"usage": 3, "tool_calls": "x", "duration_ms": "long"}]
    kinds = ("model.answered", "tool.finished", "guard.tripped", "phase.entered")
    for kind in (*kinds, "approval.requested", "approval.decided", "tool.checked"):
        for data in wrong:
            narrator.line({"type": kind, "at": "yesterday", "data": data})
