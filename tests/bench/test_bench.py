"""The bench itself: it does the work it says, counts what it says, and refuses what is wrong."""

import asyncio
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.bench import agent, floor, handover, procs, report
from tests.bench.closed_loop import ClosedLoop, Sample
from tests.bench.driver import Driver, WrongError
from tests.bench.loops import CLIENTS
from tests.bench.measuring import Figures, median, percentile
from tests.bench.model import bench
from tests.bench.systems import Cell
from tests.bench.work import ANSWER, EXPRESSIONS, MODEL_CALLS, task
from tests.scripted.model import ScriptedModel


@pytest.mark.parametrize("client", sorted(CLIENTS))
async def test_a_bare_loop_does_the_whole_work(client: str) -> None:
    steps: list[str] = []

    async def on_step(kind: str, _data: agent.Json) -> None:
        steps.append(kind)

    async with ScriptedModel(bench) as model, CLIENTS[client](model.base_url) as ask:
        answer = await agent.run(ask, task(slow=False), on_step=on_step)
    assert (answer, model.count) == (ANSWER, MODEL_CALLS)
    assert steps == ["step.finished"] * len(EXPRESSIONS) + ["model.answered"]


async def test_the_model_takes_its_orders_from_the_task() -> None:
    request = {"messages": [{"role": "user", "content": task(slow=False, over_http=True)}]}
    [answer] = bench(request, 1).steps({**request, "stream": True})
    assert b"echo" in bytes(answer)  # type: ignore[arg-type] # it is bytes
    request = {"messages": [{"role": "user", "content": task(slow=True)}]}
    first, _ = bench(request, 1).steps({**request, "stream": True})
    assert getattr(first, "seconds", 0) == 0.2


async def test_a_window_opens_after_the_warmup_and_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def session() -> Sample:
        await asyncio.sleep(0.01)
        return Sample(0.01, 0.005)

    loop = ClosedLoop(session, inflight=2, warmup_s=0.05, seconds=0.1)
    await loop.run()
    loop.tell()
    assert loop.window.errors == []
    assert 1 <= len(loop.window.latencies_ms) <= 21
    assert 0.1 <= loop.window.seconds < 1.0
    told = capsys.readouterr().out
    assert told.index("begin") < told.index("end") < told.index("result")


async def test_a_session_that_fails_is_an_error_and_many_end_the_run() -> None:
    async def session() -> Sample:
        raise RuntimeError("no")

    loop = ClosedLoop(session, inflight=1, warmup_s=0.0, seconds=100.0)
    await loop.run()
    assert loop.window.errors == ["RuntimeError: no"] * 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "stopped"},
        {"result": {"text": "Something else."}},
        {"usage": {"model_calls": 5, "tool_calls": 3}},
    ],
)
async def test_a_session_that_did_not_do_the_work_is_refused(wrong: agent.Json) -> None:
    usage = {"model_calls": 5, "tool_calls": 4}
    right = {"status": "completed", "result": {"text": ANSWER}, "usage": usage}
    async with await _server({**right, **wrong}) as url, aiohttp.ClientSession() as http:
        with pytest.raises(WrongError):
            await Driver(http, url, {"task": "x"}, events=1).waited()


async def test_a_stream_with_another_number_of_events_is_refused() -> None:
    stream = f'event: turn.ended\nid: 1\ndata: {{"completed": "{ANSWER}"}}\n\n'
    async with await _server(stream) as url, aiohttp.ClientSession() as http:
        assert (await Driver(http, url, {"task": "x"}, events=1).streamed()).first_event_s > 0
        with pytest.raises(WrongError):
            await Driver(http, url, {"task": "x"}, events=2).streamed()


async def _server(body: object) -> "_Served":
    async def answer(_request: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(text=body, content_type="text/event-stream")
        return web.json_response(body)

    app = web.Application()
    app.router.add_post("/v1/sessions", answer)
    return _Served(web.AppRunner(app))


class _Served:
    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    async def __aenter__(self) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def test_cpu_counts_children_that_are_gone_and_those_that_live() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while procs.cpu_ms({"it": [process.pid]})["it"] < 300:
            assert process.poll() is None
        assert procs.memory_mb({"it": [process.pid]})["it"] > 1
        process.kill()
    assert procs.cpu_ms({"gone": [process.pid]}) == {"gone": 0.0}


def _figures(rate: float, p50: float) -> Figures:
    return Figures(rate, p50, p50, p50, p50, 1, 1, 1, 0.1, 0.1, 1, 1, 1, sessions=100, others=0)


def test_percentiles_are_nearest_ranks_and_medians_are_by_figure() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0
    runs = [_figures(10, 3), _figures(30, 1), _figures(20, 2)]
    assert (median(runs).rate, median(runs).p50) == (20, 2)


def test_aims_say_what_was_met() -> None:
    results = report.Results()
    for system, p50, rate in (("bare", 1.0, 500.0), ("floor", 11.0, 300.0), ("ours", 26.0, 120.0)):
        results.add(system, Cell(1), _figures(90, p50))
        results.add(system, Cell(64), _figures(rate, 50))
    assert report.aims(results, floor="floor", bare="bare", ours=["ours"]) == [
        "ours, waited: 120.0 sessions/s at 64 in flight, aim 100: met",
        "ours, waited: added latency at 1 in flight 2.50 x the floor service's, aim 2: NOT met",
    ]
    [(title, rows)] = report.tables(results, "floor")
    assert title.startswith("Model delay 0 ms")
    assert rows[-1][-2:] == ["0.40", "1.00"]
    assert report.as_markdown(rows).count("\n") == len(rows)


@pytest.mark.slow
def test_it_runs_and_writes_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    options = ["--quick", "--seconds", "0.2", "--only", "floor", "--only", "aiohttp"]
    options += ["--markdown", str(page), "--folder", str(tmp_path / "logs")]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "| floor service | 16 |" in page.read_text()
    assert floor.EVENTS == 7


def test_a_handover_is_read_from_the_journal() -> None:
    """The second claim and the first answer after it, counted from the blow."""
    at = "2026-01-05T09:30:0"
    told = [
        ("session.claimed", "1.000000Z"),
        ("model.answered", "1.500000Z"),
        ("session.claimed", "5.250000Z"),
        ("model.requested", "5.260000Z"),
        ("model.answered", "5.750000Z"),
    ]
    journal = [{"type": kind, "at": at + second} for kind, second in told]
    blow = datetime.fromisoformat(at + "2Z").timestamp()
    assert handover.after(journal, blow) == pytest.approx((3.25, 3.75))
    assert handover.after(journal[:2], blow) is None


def test_processes_are_kept_on_some_cores_for_a_while() -> None:
    whole = os.sched_getaffinity(0)
    with procs.only_on(1, [os.getpid()]):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == whole
