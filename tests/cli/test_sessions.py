"""`resume`, `trace`, `cancel`."""

import json

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.events import ANSWER, Journal, golden, until_answer
from tests.cli.fake_service import Answer, FakeService, problem


def stopped_and_resumed() -> Journal:
    """A turn that a guard stopped, and the turn that goes on with it."""
    journal = until_answer()
    journal.add("guard.tripped", guard="max_steps", detail="2 of 2", stop_reason="max_steps")
    journal.end("stopped", "max_steps")
    journal.turn, journal.step = 2, 0
    journal.add("session.resumed", turn=1)
    journal.add("turn.started", text="What do I pay?", continues=1)
    journal.phase = None
    journal.move("OBSERVE")
    journal.end()
    return journal


@pytest.mark.req("LOOP-13")
async def test_resume_raises_limits_and_shows_the_new_turn_only(
    service: FakeService, surefoot: Surefoot
) -> None:
    events = stopped_and_resumed().events
    before = next(n for n, e in enumerate(events, 1) if e["type"] == "turn.ended")
    service.streams = [events[before:]]
    service.session = {"status": "completed", "last_seq": before}
    ran = await surefoot("resume", "ses_1", "--max-steps", "20", "--follow")
    [asked] = service.of("POST", "/v1/sessions/ses_1/resume")
    [stream] = service.of("GET", "/v1/sessions/ses_1/stream")
    assert asked.body == {"limits": {"max_steps": 20}}
    assert stream.query == {"after": str(before)}
    assert (ran.code, "completed · final_answer" in ran.out) == (0, True)
    assert "guard" not in ran.out


async def test_resume_waits_for_the_worker_to_begin(
    service: FakeService, surefoot: Surefoot
) -> None:
    """The first stream has nothing: the turn is about to start."""
    events = stopped_and_resumed().events
    before = next(n for n, e in enumerate(events, 1) if e["type"] == "turn.ended")
    service.answers["GET /v1/sessions/ses_1/stream"] = [Answer(204, "")]
    service.streams = [events[before:]]
    service.session = {"status": "completed", "last_seq": before}
    ran = await surefoot("resume", "ses_1")
    assert (ran.code, ran.out) == (0, ANSWER + "\n")


async def test_resume_without_limits_sends_none(service: FakeService, surefoot: Surefoot) -> None:
    service.streams = [golden()]
    service.session = {"status": "completed", "last_seq": 0}
    await surefoot("resume", "ses_1")
    assert service.of("POST", "/v1/sessions/ses_1/resume")[0].body == {}


async def test_a_resume_that_is_refused_is_exit_2(service: FakeService, surefoot: Surefoot) -> None:
    refusal = problem(409, "Not resumable", detail="A completed session has nothing to resume.")
    service.answers["POST /v1/sessions/ses_1/resume"] = [refusal]
    ran = await surefoot("resume", "ses_1")
    assert ran.code == 2
    assert "A completed session has nothing to resume." in ran.err


async def test_a_trace_is_a_tree_of_turns_and_steps_and_a_table(
    service: FakeService, surefoot: Surefoot
) -> None:
    service.events = stopped_and_resumed().events
    agent = {"name": "default", "version": 1}
    service.session = {"status": "completed", "agent": agent, "model": "scripted"}
    ran = await surefoot("trace", "ses_1")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert lines[0] == "ses_1 · completed · agent default v1 · model scripted"
    assert lines[1] == "├── turn 1 · What do I pay?"
    assert lines[2] == "│ ├── +0.010 phase → OBSERVE"
    assert "│ ├── step 1" in lines
    assert any("+0.060 tool ▸ calculate" in line for line in lines)
    assert any("guard ! max_steps: 2 of 2 · stops the turn: max_steps" in line for line in lines)
    assert any("turn 2 · continues turn 1" in line for line in lines)
    assert sum("completed · final_answer" in line for line in lines) == 1
    assert lines[-3:] == [
        "turn step model calls tokens in tokens out tools tools ms",
        "1 1 1 120 18 1 3",
        "1 2 1 120 18 0 0",
    ]


async def test_a_trace_is_read_page_by_page(service: FakeService, surefoot: Surefoot) -> None:
    service.events = golden()
    ran = await surefoot("trace", "ses_1", "--json")
    shown = json.loads(ran.out)
    asked = [seen.query["after"] for seen in service.of("GET", "/v1/sessions/ses_1/events")]
    assert shown["events"] == golden()
    assert shown["session"]["id"] == "ses_1"
    assert asked == ["0", "7", "14"]


@pytest.mark.usefixtures("service")
async def test_an_unknown_session_is_exit_2(surefoot: Surefoot) -> None:
    ran = await surefoot("trace", "ses_2")
    assert (ran.code, "Check the name or id" in ran.err) == (2, True)


@pytest.mark.req("API-8")
async def test_cancel_writes_what_it_settled_on(service: FakeService, surefoot: Surefoot) -> None:
    service.session = {"stop_reason": "cancelled"}
    ran = await surefoot("cancel", "ses_1")
    assert (ran.code, ran.out) == (0, "ses_1 cancelled · cancelled\n")
    ran = await surefoot("cancel", "ses_1", "--json")
    assert json.loads(ran.out)["status"] == "cancelled"


async def test_a_verification_is_sent_and_the_session_watched(
    service: FakeService, surefoot: Surefoot
) -> None:
    path = "POST /v1/sessions/ses_1/verifications"
    service.answers[path] = [Answer(202, {"id": "ses_1", "status": "running"})]
    service.streams = [golden()]
    service.session = {"status": "completed", "last_seq": 0}
    ran = await surefoot("verify", "ses_1", "t1_c1_1", "happened", "--output", '{"receipt": 17}')
    (seen,) = service.of("POST", "/v1/sessions/ses_1/verifications")
    assert seen.body == {"call_id": "t1_c1_1", "outcome": "happened", "output": {"receipt": 17}}
    assert ran.code == 0
    ran = await surefoot("verify", "ses_1", "t1_c1_1", "happened", "--output", "paid")
    assert (ran.code, "not JSON" in ran.err) == (2, True)
    assert (await surefoot("verify", "ses_1", "t1_c1_1", "maybe")).code == 2
