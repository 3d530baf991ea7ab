"""Spans of the real service at a real collector: one tree a turn, whoever ran it and however."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from datetime import datetime
from socket import create_server
from typing import Any

import pytest

from app.telemetry import names
from tests.integration.client import Client, Json
from tests.integration.plans import Stepwise, sums, task_of
from tests.integration.stack import Stacks
from tests.otlp.receiver import Received, Receiver, receiver
from tests.scripted.answers import Answer, args, calls, error, stream, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Hold, Request, Server, response
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
PHASES = {"observe", "think", "act", "reflect"}


def exporting(endpoint: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "SUREFOOT_JAEGER_URL": "http://127.0.0.1:16686",
    }


async def whole_tree(collector: Receiver, trace_id: str) -> list[Received]:
    """Wait for the root, which is told last, and return the trace as a store would show it."""

    def ended(spans: Iterable[Received]) -> bool:
        return any(s.trace_id == trace_id and s.parent_id is None for s in spans)

    await collector.wait_for(ended)
    return [span for span in collector.tree().values() if span.trace_id == trace_id]


def is_one_tree(spans: list[Received], events: list[Json]) -> Received:
    """One root; each span's parent exists and spans it; each transition and call has a span."""
    by_id = {span.span_id: span for span in spans}
    (root,) = [span for span in spans if span.parent_id is None]
    for span in spans:
        assert span.parent_id is None or span.parent_id in by_id, span.name
    for kind, parent in ((names.CHAT, "think"), (names.EXECUTE_TOOL, "act")):
        for span in spans:
            if span.name.startswith(kind):
                assert by_id[span.parent_id or ""].name == parent
    for span in spans:
        if span.name in PHASES:
            assert span.parent_id == root.span_id
            assert set(span.attributes) == names.SPAN_ATTRIBUTES["phase"]
        else:
            allowed = names.SPAN_ATTRIBUTES.get(span.name.split()[0], names.SPAN_ATTRIBUTES["root"])
            assert set(span.attributes) <= allowed
        assert span.start_ns <= span.end_ns
    entered = [e for e in events if e["type"] == "phase.entered" and e["data"]["to"] != "DONE"]
    assert sum(s.name in PHASES for s in spans) == len(entered)
    answered = sum(e["type"] == "model.answered" for e in events)
    assert sum(s.name.startswith("chat ") for s in spans) >= answered
    finished = [e["data"]["call_id"] for e in events if e["type"] == "tool.finished"]
    told = {s.attributes.get(names.TOOL_CALL) for s in spans} - {None}
    assert told == set(finished)
    return root


def two_parallel(request: Body, _n: int) -> Answer:
    if results_so_far(request):
        return text("Both were heard.")
    return calls(*(tc(f"c{i}", "echo", args(text=f"word {i}")) for i in range(2)))


@pytest.mark.req("OBS-1", "API-6", "LOOP-2", "LOOP-12")
@pytest.mark.case("C139")
async def test_one_tree_with_two_parallel_tools_and_a_link(stacks: Stacks) -> None:
    async with (
        receiver() as collector,
        ScriptedModel(two_parallel) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env=exporting(collector.endpoint)) as stack,
    ):
        client = stack.client(await stack.start("api"))
        await stack.start("worker")
        await client.register(*tools.specs())
        made = await client.http.post(
            "/v1/sessions", json={"task": "echo twice"}, headers={"traceparent": PARENT}
        )
        session = await client.settled(made.json()["id"])
        trace_id = session["trace_id"]
        assert session["trace_url"] == f"http://127.0.0.1:16686/trace/{trace_id}"
        spans = await whole_tree(collector, trace_id)
        root = is_one_tree(spans, await client.events(session["id"]))
        assert root.name == "invoke_agent default"
        assert root.links == (("ab" * 16, "cd" * 8),)
        assert {s.trace_id for s in collector.spans()} == {trace_id}
        assert root.attributes[names.CONVERSATION] == session["id"]
        assert root.attributes[names.STOP_REASON] == "final_answer"
        assert root.attributes[names.INPUT_TOKENS] == session["usage"]["input_tokens"]
        acts = [s for s in spans if s.name == "execute_tool echo"]
        assert len(acts) == 2
        # What a tool and a model are told is the very span of that call.
        told = {d.headers["traceparent"] for d in tools.received}
        assert told == {f"00-{trace_id}-{span.span_id}-01" for span in acts}
        asked = {seen.headers["traceparent"] for seen in model.requests}
        chats = [s for s in spans if s.name == "chat scripted"]
        assert asked == {f"00-{trace_id}-{span.span_id}-01" for span in chats}
        again = await client.post(f"/v1/sessions/{session['id']}/messages", {"text": "more"})
        assert again["receipt"] == "started"
        second = await _turn(client, session["id"], 2)
        is_one_tree(
            await whole_tree(collector, second["trace_id"]),
            [e for e in await client.events(session["id"]) if e["turn"] == 2],
        )
        assert second["trace_id"] != trace_id


async def _turn(client: Client, session_id: str, number: int) -> Json:
    async def there() -> bool:
        return bool((await client.settled(session_id))["turn"] == number)

    await until(there)
    return await client.settled(session_id)


@pytest.mark.req("OBS-1", "STATE-4")
async def test_one_tree_across_a_kill_and_a_takeover(stacks: Stacks) -> None:
    plan = Stepwise(*sums(1), ("get_weather", {"city": "Rome", "date": "2026-01-01"}), *sums(3)[1:])
    async with (
        receiver() as collector,
        ScriptedModel(plan) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env=exporting(collector.endpoint)) as stack,
    ):
        client = stack.client(await stack.start("api"))
        # Nothing that the first has made is sent before it dies.
        first = await stack.start("worker", env={"OTEL_BSP_SCHEDULE_DELAY": "60000"})
        await client.register(*tools.specs())
        hold = tools.hold_after("get_weather")
        session_id = await client.create("run")
        await hold.reached()
        first.kill()
        await stack.start("worker")
        await tools.called(2)
        hold.release()
        session = await client.settled(session_id)
        assert session["status"] == "completed"
        events = await client.events(session_id)
        assert sum(e["type"] == "session.claimed" for e in events) == 2
        spans = await whole_tree(collector, session["trace_id"])
        root = is_one_tree(spans, events)
        assert root.attributes[names.EPOCH] == 2
        started = next(e for e in events if e["type"] == "turn.started")
        assert abs(root.start_ns / 1e9 - _epoch(started["at"])) < 0.001
        assert {s.trace_id for s in collector.spans()} == {session["trace_id"]}


def _epoch(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """An address that takes connections and never says a word."""
    with closing(create_server(("127.0.0.1", 0), backlog=128)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    with closing(create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@pytest.mark.alone
@pytest.mark.req("OBS-1", "OPS-4", "OBS-2")
@pytest.mark.case("C141", "C142")
@pytest.mark.parametrize("collector", [refusing, black_hole])
async def test_a_dead_collector_costs_nothing(stacks: Stacks, collector: Any) -> None:
    plan = Stepwise(*sums(4))
    async with collector() as address, ScriptedModel(plan) as model:
        env = {
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
            **exporting(address),
        }
        async with stacks.open(model=model.base_url) as stack:
            plain = await _fastest(stack.client(await stack.start("all")))
        async with stacks.open(model=model.base_url, env=env) as stack:
            process = await stack.start("all")
            client = stack.client(process)
            exported = await _fastest(client)
            # Waiting for this collector once would take a second or more; how close to a tenth
            # it comes is for `make bench` on a quiet machine.
            assert exported < plain * 1.1 + 0.7
            dropped = (await client.http.get("/metrics")).text
            assert _total(dropped, "surefoot_spans_dropped_total") > 0
            began = time.monotonic()
            process.terminate()
            assert await process.wait() == 0
            assert time.monotonic() - began < 3 + 5


async def _fastest(client: Client) -> float:
    """Return the time of the fastest of ten runs: the machine is shared, the code is not."""
    took: list[float] = []
    for n in range(10):
        began = time.monotonic()
        session = await client.post("/v1/sessions", {"task": f"run {n}"})
        await client.settled(session["id"])
        took.append(time.monotonic() - began)
    return min(took)


def _total(metrics: str, name: str) -> float:
    lines = [line for line in metrics.splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.req("OBS-1", "API-8")
@pytest.mark.case("C136", "C137")
async def test_turns_that_are_cut_leave_whole_trees(stacks: Stacks) -> None:
    """Readers that leave, cancels and timeouts in mid-stream, many at once: each span ends once.

    That no process logs a context which could not be detached is looked at with every stack.
    """
    holds = {f"{how} {n}": Hold() for how in ("leave", "cancel", "timeout") for n in range(8)}

    def plan(request: Body, _n: int) -> Answer:
        return stream({"content": "So far "}, holds[task_of(request)], {"content": "so good."})

    async with (
        receiver() as collector,
        ScriptedModel(plan) as model,
        stacks.open(model=model.base_url, env=exporting(collector.endpoint)) as stack,
    ):
        client = stack.client(await stack.start("all"))

        async def run(task: str) -> Json:
            limits = {"total_timeout_s": 1} if task.startswith("timeout") else {}
            session_id = await client.create(task, limits=limits)
            async with client.stream(session_id) as frames:
                assert frames is not None
                async for frame in frames:
                    if frame.type == "model.requested":
                        break
            await holds[task].reached()
            if task.startswith("cancel"):
                return await client.cancel(session_id)
            if task.startswith("leave"):
                holds[task].release()
            return await client.settled(session_id)

        async with asyncio.TaskGroup() as group:
            running = {task: group.create_task(run(task)) for task in holds}
        expected = {"leave": "completed", "cancel": "cancelled", "timeout": "stopped"}
        for task, made in running.items():
            session = made.result()
            assert session["status"] == expected[task.split()[0]]
            spans = await whole_tree(collector, session["trace_id"])
            is_one_tree(spans, await client.events(session["id"]))
            told = [s for s in collector.spans() if s.trace_id == session["trace_id"]]
            assert len(told) == len({s.span_id for s in told})
            (chat,) = [s for s in told if s.name.startswith(names.CHAT)]
            assert chat.failed is not task.startswith("leave")


SECRET = "tool-canary-2-0123456789"


def _echoing(request: Request) -> list[bytes]:
    """Answer with what came, headers too: once as an error, then as a result."""
    body = json.dumps({"you sent": request.headers}).encode()
    return [response(400 if request.headers["idempotency-key"].endswith("c1_1") else 200, body)]


@pytest.mark.req("STATE-5", "OBS-3")
@pytest.mark.case("C146")
@pytest.mark.parametrize("key", ["sk-canary-1-0123456789", "canary one, of no known form"])
async def test_secrets_are_nowhere_to_be_seen(stacks: Stacks, key: str) -> None:
    def plan(request: Body, n: int) -> Answer:
        if request["messages"][1]["content"] == "refused":
            return error(401, f"Incorrect API key provided: {key}.")
        if n % 3 == 1:
            return error(429, f"Too many requests of {key}", {"retry-after": "0"})
        if n % 3 == 2:
            return error(500, f"Internal error for Bearer {key}")
        done = len(results_so_far(request))
        return calls(tc(f"c{done}", "guarded", args(n=done))) if done < 2 else text("done")

    async with (
        receiver() as collector,
        ScriptedModel(plan) as model,
        Server(_echoing) as server,
        stacks.open(
            model=model.base_url,
            env={
                **exporting(collector.endpoint),
                "SUREFOOT_LLM_API_KEY": key,
                "SUREFOOT_SECRET_WEATHER_KEY": SECRET,
                "SUREFOOT_LOG_LEVEL": "debug",
                "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
            },
        ) as stack,
    ):
        process = await stack.start("all")
        client = stack.client(process)
        shown = [str(await client.post("/v1/tools", _guarded(server.root)))]
        for task in ("refused", "retried"):
            session = await client.settled(await client.create(task))
            shown.append(str(session) + str(await client.events(session["id"])))
            await whole_tree(collector, session["trace_id"])
        paths = ("/v1/tools", "/v1/tools/guarded", "/metrics", "/readyz", "/v1/sessions")
        shown.extend([(await client.http.get(path)).text for path in paths])
        invoked = await client.http.post("/v1/tools/guarded/invoke", json={"arguments": {"n": 1}})
        shown.append(invoked.text)
        assert "[secret]" in invoked.text  # it was sent, it came back, and it is not shown
        assert model.requests[0].headers["authorization"] == f"Bearer {key}"
        for where in (*shown, process.text(), collector.raw.decode(errors="replace")):
            assert key not in where
            assert SECRET not in where
        stored = await stack.rows("select string_agg(spec::text, '') as all from tools")
        assert SECRET not in stored[0]["all"]


def _guarded(root: str) -> Json:
    return {
        "name": "guarded",
        "kind": "http",
        "description": "Says back what it is given. Use it for tests.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "http": {
            "method": "POST",
            "url": f"{root}/x",
            "headers": {"X-Key": "{{secret:weather_key}}"},
        },
        "effect": "read",
    }
