"""`surefoot run`: what is sent, what is shown, and the exit code of each outcome."""

import asyncio
import io
import json
import os
import signal
import sys

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.events import ANSWER, golden, until_answer
from tests.cli.fake_service import Answer, Cut, Delta, FakeService, Rest, problem
from tests.waiting import until


def finished(service: FakeService, status: str = "completed", **more: object) -> None:
    """Let the service hold a session that ended so."""
    service.streams = [golden(status, **more)]  # type: ignore[arg-type] # text for text
    service.session = {"status": status, "last_seq": 20}


async def test_the_answer_alone_goes_to_stdout(service: FakeService, surefoot: Surefoot) -> None:
    finished(service)
    ran = await surefoot("run", "What do I pay?")
    assert (ran.code, ran.out, ran.err) == (0, ANSWER + "\n", "")


async def test_the_request_has_the_task_tools_model_and_limits(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREFOOT_API_KEY", "key-of-the-test")
    finished(service)
    limits = ["--max-steps", "3", "--token-budget", "500", "--max-cost", "0.5"]
    tools = ["--tool", "calculate", "--tool", "now"]
    await surefoot("run", "Pay", *tools, "--model", "m", "--total-timeout", "9", *limits)
    [seen] = service.of("POST", "/v1/sessions")
    assert seen.body == {
        "task": "Pay",
        "tools": ["calculate", "now"],
        "model": "m",
        "limits": {
            "max_steps": 3,
            "token_budget": 500,
            "max_cost": 0.5,
            "total_timeout_s": 9.0,
        },
    }
    assert seen.headers["authorization"] == "Bearer key-of-the-test"
    assert len(seen.headers["idempotency-key"]) > 16


async def test_a_bare_run_leaves_everything_to_the_service(
    service: FakeService, surefoot: Surefoot
) -> None:
    finished(service)
    await surefoot("run", "Pay")
    assert service.of("POST", "/v1/sessions")[0].body == {"task": "Pay"}


async def test_a_dash_reads_the_task_from_stdin(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(service)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Pay, please"))
    await surefoot("run", "-")
    assert service.of("POST", "/v1/sessions")[0].body == {"task": "Pay, please"}


async def test_following_shows_phases_tokens_calls_and_the_answer(
    service: FakeService, surefoot: Surefoot
) -> None:
    finished(service)
    ran = await surefoot("run", "What do I pay?", "--follow")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines == [
        "session ses_1",
        "phase → OBSERVE",
        "phase OBSERVE → THINK",
        "model ▸ scripted · 100 tokens in the request",
        "model ◂ 120 tokens in, 18 out · 10 ms · calls calculate",
        "phase THINK → ACT",
        'tool ▸ calculate {"expression":"299 * 0.8 - 50"} t1_c1_1',
        'tool ◂ calculate ok · 3 ms → {"result":189.2}',
        "phase ACT → REFLECT",
        "step 1 finished · 1/1 calls ok · 138 tokens so far",
        "phase REFLECT → OBSERVE",
        "phase OBSERVE → THINK",
        "model ▸ scripted · 100 tokens in the request",
        "model ◂ 120 tokens in, 18 out · 10 ms · stop",
        "phase THINK → REFLECT",
        "step 2 finished · 276 tokens so far",
        "phase REFLECT → DONE",
        "answer",
        ANSWER,
        "completed · final_answer · 2 model calls · 1 tool calls · 120 tokens in, 18 out",
    ]


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("completed", "final_answer", 0),
        ("stopped", "max_steps", 3),
        ("failed", "model_unavailable", 4),
        ("cancelled", "cancelled", 5),
    ],
)
async def test_the_exit_code_is_the_outcome(
    service: FakeService, surefoot: Surefoot, status: str, reason: str, code: int
) -> None:
    finished(service, status, reason=reason)
    ran = await surefoot("run", "Pay", "--follow")
    assert ran.code == code
    assert f"{status} · {reason}" in ran.out


async def test_a_stopped_run_says_how_to_go_on(service: FakeService, surefoot: Surefoot) -> None:
    finished(service, "stopped", reason="max_steps")
    ran = await surefoot("run", "Pay")
    assert ran.out == ANSWER + "\n"
    assert ran.err == "Go on with higher limits: surefoot resume ses_1 --max-steps N\n"


async def test_a_failure_is_told_with_its_kind(service: FakeService, surefoot: Surefoot) -> None:
    error = {"kind": "unavailable", "message": "The endpoint refuses connections."}
    finished(service, "failed", reason="model_unavailable", error=error)
    ran = await surefoot("run", "Pay", "--follow")
    assert "unavailable: The endpoint refuses connections." in ran.out
    assert "surefoot trace ses_1" in ran.err


async def test_a_failure_is_told_without_follow_too(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"kind": "unavailable", "message": "The endpoint refuses connections."}
    finished(service, "failed", reason="model_unavailable", error=error)
    monkeypatch.delenv("SUREFOOT_URL")
    ran = await surefoot("--url", service.url, "run", "Pay")
    assert "unavailable: The endpoint refuses connections." in ran.err
    assert f"surefoot --url {service.url} trace ses_1" in ran.err


async def test_a_run_that_waits_ends_with_6_and_says_for_what(
    service: FakeService, surefoot: Surefoot
) -> None:
    journal = until_answer()
    journal.move("WAITING")
    service.streams = [[*journal.events, Rest()]]
    calls = [{"call_id": "t1_c1_1", "name": "pay", "arguments": {"amount": 5}}]
    service.session = {"status": "waiting", "pending": {"kind": "verification", "calls": calls}}
    ran = await surefoot("run", "Pay")
    assert ran.code == 6
    assert "ses_1 waits: verification" in ran.err
    assert 'pay {"amount":5}' in ran.err
    assert "surefoot verify ses_1 t1_c1_1 happened" in ran.err
    assert f"{service.url}/v1/sessions/ses_1/verifications" in ran.err


async def test_a_broken_stream_is_taken_up_where_it_broke(
    service: FakeService, surefoot: Surefoot
) -> None:
    events = golden()
    # The second connection repeats an event: it must not be shown twice.
    service.streams = [[*events[:9], Delta("You"), Cut()], events[8:]]
    service.session = {"status": "completed"}
    ran = await surefoot("run", "Pay", "--follow")
    first, second = service.of("GET", "/v1/sessions/ses_1/stream")
    assert (first.query, first.headers.get("last-event-id")) == ({"after": "0"}, None)
    assert (second.query, second.headers["last-event-id"]) == ({}, "9")
    assert ran.out.count("calculate ok") == 1
    assert ran.out.count("connection lost") == 1
    assert (ran.code, ran.out.count(ANSWER)) == (0, 1)


async def test_a_service_that_restarts_is_waited_for(
    service: FakeService, surefoot: Surefoot
) -> None:
    events = golden()
    service.streams = [[*events[:5], Cut()], events[5:]]
    path = "GET /v1/sessions/ses_1/stream"
    service.answers[path] = []
    service.session = {"status": "completed"}
    starting = problem(503, "Not ready")
    # The answers go first, so the one 503 comes at the very first try.
    service.answers[path].append(starting)
    ran = await surefoot("run", "Pay", "--follow")
    assert ran.code == 0
    assert "connection lost (Not ready (503))" in ran.out


async def test_a_stream_that_ends_before_the_turn_is_asked_for_again(
    service: FakeService, surefoot: Surefoot
) -> None:
    events = golden()
    service.streams = [events[:4], events[4:]]
    service.session = {"status": "completed"}
    ran = await surefoot("run", "Pay")
    assert (ran.code, ran.out) == (0, ANSWER + "\n")


async def test_json_is_a_line_an_event_and_then_the_session(
    service: FakeService, surefoot: Surefoot
) -> None:
    finished(service)
    service.streams = [[*golden()[:5], Delta("piece"), *golden()[5:]]]
    ran = await surefoot("run", "Pay", "--follow", "--json")
    *events, session = [json.loads(line) for line in ran.out.splitlines()]
    assert events == golden()
    assert (session["id"], session["status"]) == ("ses_1", "completed")


async def test_json_without_following_is_the_session(
    service: FakeService, surefoot: Surefoot
) -> None:
    finished(service)
    ran = await surefoot("run", "Pay", "--json")
    assert json.loads(ran.out)["status"] == "completed"


async def test_structured_data_is_written_as_json(service: FakeService, surefoot: Surefoot) -> None:
    finished(service, result={"text": "", "data": {"total": 189.2}})
    ran = await surefoot("run", "Pay")
    assert json.loads(ran.out) == {"total": 189.2}


async def test_detached_it_writes_the_id_and_leaves(
    service: FakeService, surefoot: Surefoot
) -> None:
    ran = await surefoot("run", "Pay", "--detach")
    assert (ran.code, ran.out) == (0, "ses_1\n")
    assert service.of("GET", "/v1/sessions/ses_1/stream") == []


async def test_text_of_others_cannot_command_the_terminal(
    service: FakeService, surefoot: Surefoot
) -> None:
    journal = until_answer()
    journal.call(output="\x1b]0;owned\x07\x1b[2J[bold]not markup[/bold]")
    journal.end(result={"text": "fine\x1b[31m"})
    service.streams = [journal.events]
    service.session = {"status": "completed"}
    ran = await surefoot("run", "Pay", "--follow")
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out
    assert "[bold]not markup[/bold]" in ran.out


async def test_a_lost_answer_to_the_post_is_asked_for_again_under_the_same_key(
    service: FakeService, surefoot: Surefoot
) -> None:
    finished(service)
    service.lost_answers = 1
    ran = await surefoot("run", "Pay")
    first, second = service.of("POST", "/v1/sessions")
    assert ran.code == 0
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


async def test_an_answer_of_something_else_is_not_a_session(
    service: FakeService, surefoot: Surefoot
) -> None:
    service.answers["POST /v1/sessions"] = [Answer(200, "hello", "text/html")]
    ran = await surefoot("run", "Pay")
    assert ran.code == 2
    assert "SUREFOOT_URL" in ran.err


# A shell that runs this suite in the background has its children ignore Ctrl-C.
_INTERRUPTIBLE = """
import signal
from app.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


async def test_ctrl_c_leaves_the_session_running(service: FakeService) -> None:
    service.streams = [[*until_answer().events, Rest()]]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(
            "-c",
            _INTERRUPTIBLE,
            "run",
            "Pay",
            "--follow",
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SUREFOOT_URL": service.url, "PYTHONUNBUFFERED": "1"},
    )
    await until(lambda: bool(service.of("GET", "/v1/sessions/ses_1/stream")))
    assert process.stdout is not None
    async for line in process.stdout:
        if b"step    2" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert b"surefoot cancel ses_1" in err
    assert service.of("POST", "/v1/sessions/ses_1/cancel") == []
