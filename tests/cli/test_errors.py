"""What a user reads when it goes wrong: what happened, what to do, and the code."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.fake_service import Answer, FakeService, problem
from tests.cli.test_run import finished


def surefoot_process(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli.main", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_listening_is_exit_7_and_says_how_to_start_it() -> None:
    ran = surefoot_process("run", "Pay", SUREFOOT_URL="http://127.0.0.1:9")
    assert ran.returncode == 7
    assert ran.stderr.splitlines() == [
        "Surefoot cannot be reached at http://127.0.0.1:9 ([Errno 111] Connection refused).",
        "Start it with `surefoot dev`, or set SUREFOOT_URL to where it runs.",
    ]


def test_wrong_usage_is_exit_2() -> None:
    assert surefoot_process("run").returncode == 2
    assert surefoot_process("run", "Pay", "--max-steps", "0").returncode == 2
    assert surefoot_process("dance").returncode == 2


@pytest.mark.alone
def test_help_names_the_exit_codes_and_is_quick() -> None:
    took: list[float] = []
    for _ in range(3):
        began = time.monotonic()
        ran = surefoot_process("run", "--help")
        took.append(time.monotonic() - began)
        assert "6 waiting for a person" in " ".join(ran.stdout.split())
        assert ran.returncode == 0
    # Some 0.25 s alone; the room is for a machine that does other things.
    assert min(took) < 2.0


def test_help_does_not_load_the_service() -> None:
    names = "fastapi asyncpg sqlalchemy opentelemetry pydantic aiohttp redis"
    code = f"import sys, app.cli.main; print([n for n in '{names}'.split() if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "http://"])
async def test_an_address_that_is_none(
    surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SUREFOOT_URL", url)
    ran = await surefoot("run", "Pay")
    assert ran.code == 2
    assert "Set SUREFOOT_URL to something like" in ran.err


@pytest.mark.req("API-12")
async def test_a_problem_is_told_with_its_fields(service: FakeService, surefoot: Surefoot) -> None:
    errors = [{"pointer": "/limits/max_steps", "message": "at most 100"}]
    detail = "The request has a fault."
    refusal = problem(422, "Invalid request", detail=detail, errors=errors)
    service.answers["POST /v1/sessions"] = [refusal]
    ran = await surefoot("run", "Pay")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "Invalid request: The request has a fault. (422)",
        "  /limits/max_steps: at most 100",
        "Correct what is named above and try again.",
    ]


async def test_a_missing_key_says_which_variable(service: FakeService, surefoot: Surefoot) -> None:
    service.answers["POST /v1/sessions"] = [problem(401, "Unauthorized")]
    ran = await surefoot("run", "Pay")
    assert (ran.code, "SUREFOOT_API_KEY" in ran.err) == (2, True)


async def test_a_refused_stream_is_no_cut(service: FakeService, surefoot: Surefoot) -> None:
    service.answers["GET /v1/sessions/ses_1/stream"] = [problem(403, "Forbidden")]
    ran = await surefoot("run", "Pay")
    assert (ran.code, "scope" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(502, "<html>bad gateway</html>", "text/html"),
        Answer(502, "not JSON", "application/json"),
        Answer(502, [], "application/json"),
    ],
)
async def test_what_is_not_the_service_is_said_so(
    service: FakeService, surefoot: Surefoot, answer: Answer
) -> None:
    service.answers["POST /v1/sessions"] = [answer]
    ran = await surefoot("run", "Pay")
    assert ran.code == 2
    assert "answered 502 Bad Gateway, and not as Surefoot does" in ran.err


async def test_an_answer_that_is_not_json(service: FakeService, surefoot: Surefoot) -> None:
    service.answers["POST /v1/sessions"] = [Answer(200, "not JSON")]
    ran = await surefoot("run", "Pay")
    assert (ran.code, "not JSON" in ran.err) == (2, True)


async def test_a_connection_that_keeps_breaking_is_exit_7(
    service: FakeService, surefoot: Surefoot
) -> None:
    service.lost_answers = 3
    ran = await surefoot("run", "Pay")
    assert ran.code == 7
    assert len(service.seen) == 3


async def test_an_id_that_would_change_the_path_is_not_sent(
    service: FakeService, surefoot: Surefoot
) -> None:
    ran = await surefoot("cancel", "../keys")
    assert (ran.code, service.seen) == (2, [])


async def test_an_empty_task_is_not_sent(service: FakeService, surefoot: Surefoot) -> None:
    ran = await surefoot("run", " ")
    assert (ran.code, service.seen) == (2, [])


async def test_an_environments_proxy_is_not_asked_about_loopback(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    finished(service)
    assert (await surefoot("run", "Pay")).code == 0


async def test_an_output_that_cannot_hold_a_character_gets_another(service: FakeService) -> None:
    finished(service)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app.cli.main", "run", "Pay", "--follow"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "SUREFOOT_URL": service.url, "PYTHONIOENCODING": "ascii"},
    )
    out, _ = await process.communicate()
    assert (process.returncode, b"OBSERVE ? THINK" in out) == (0, True)
