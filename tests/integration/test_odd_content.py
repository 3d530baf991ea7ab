"""Content that is hard to store, count or carry, through to the stored trace and the stream."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
import pytest_asyncio

from tests.integration.client import Json, Reader
from tests.integration.ground import Ground, Run, standing
from tests.integration.plans import last_message, task_of
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, args, call, calls, delayed, stream, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Request, Server, response
from tests.scripted.scripts import Script, results_so_far

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESULTS: dict[str, bytes] = {}
"""What the tool `raw` returns, by name."""
HEALTH_S = 0.5


def _raw(request: Request) -> list[bytes]:
    return [response(200, RESULTS[request.path.rpartition("/")[2]])]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made, Server(_raw) as server:
        await made.client.post(
            "/v1/tools",
            {
                "name": "raw",
                "kind": "http",
                "description": "Returns what was put there under a name. For tests.",
                "parameters": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
                "http": {"method": "GET", "url": server.root + "/{name}"},
                "effect": "read",
            },
            expect=201,
        )
        yield made


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def strictly(data: bytes) -> Json:
    """Parse as the strictest client would: UTF-8, no NaN, no lone surrogates, no NUL."""
    value: Json = json.loads(data.decode("utf-8", "strict"), parse_constant=_refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8", "strict")
    assert "\\u0000" not in json.dumps(value)
    return value


async def is_sound(ground: Ground, run: Run) -> None:
    """The session, its pages and its stream are strict JSON and say the same."""
    http = ground.client.http
    strictly((await http.get(f"/v1/sessions/{run.id}")).content)
    page = strictly((await http.get(f"/v1/sessions/{run.id}/events?limit=500")).content)
    assert page["data"] == run.events
    reader = Reader(run.id, lambda: [ground.client.url])
    await reader.run()
    assert [f.data for f in reader.durable] == run.events
    for body in run.requests:
        strictly(json.dumps(body).encode())


def asks_raw(name: str, last: Answer | None = None) -> Script:
    def plan(request: Body, _n: int) -> Answer:
        return (last or text("done")) if results_so_far(request) else call("raw", name=name)

    return plan


@pytest.mark.req("STATE-5", "API-3")
@pytest.mark.case("C116")
async def test_nul(ground: Ground) -> None:
    RESULTS["nul"] = b'{"te\\u0000xt": "one\\u0000two"}'

    def plan(request: Body, _n: int) -> Answer:
        if not results_so_far(request):
            return call("raw", name="nul")
        return text("an\0swer")

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert run.session["result"]["text"] == "an\N{REPLACEMENT CHARACTER}swer"
    assert "one\N{REPLACEMENT CHARACTER}two" in json.dumps(
        run.of("tool.finished")[0]["output"], ensure_ascii=False
    )
    await is_sound(ground, run)


def _data(content: bytes) -> bytes:
    return b'data: {"id":"x","choices":[{"index":0,"delta":' + content + b"}]}\n\n"


@pytest.mark.req("STATE-5", "API-3")
@pytest.mark.case("C118")
async def test_lone_surrogates(ground: Ground) -> None:
    RESULTS["half"] = b'{"text": "half \\ud83c", "whole": "\\ud83c\\udf89"}'

    def plan(request: Body, _n: int) -> Answer:
        if last_message(request).startswith("again"):
            return stream(_data(b'{"content": "x\\ud83c \\ud83c\\udf89"}'))
        done = len(results_so_far(request))
        if done == 0:
            return call("raw", name="half")
        if done == 1:
            call_it = (
                b'{"tool_calls": [{"index": 0, "id": "c2", "type": "function", "function": '
                b'{"name": "echo", "arguments": "{\\"text\\": \\"\\\\udf78\\"}"}}]}'
            )
            return stream(_data(call_it), finish="tool_calls")
        return stream(_data(b'{"content": "x\\ud83c \\ud83c\\udf89"}'))

    run = await ground.run(plan)
    expected = "x\N{REPLACEMENT CHARACTER} \N{PARTY POPPER}"
    assert (run.session["status"], run.session["result"]["text"]) == ("completed", expected)
    assert run.of("tool.finished")[0]["output"]["whole"] == "\N{PARTY POPPER}"
    await is_sound(ground, run)
    body = b'{"text": "again \\udf78"}'
    path = f"/v1/sessions/{run.id}/messages"
    kind = {"content-type": "application/json"}
    assert (await ground.client.http.post(path, content=body, headers=kind)).status_code == 202
    reader = Reader(run.id, lambda: [ground.client.url])
    await reader.run()
    second = await ground.rest(run.id)
    assert (second.session["turn"], second.session["result"]["text"]) == (2, expected)
    await is_sound(ground, second)


@pytest.mark.req("STATE-5", "TOOL-2")
@pytest.mark.case("C120")
async def test_numbers_that_are_none(ground: Ground) -> None:
    RESULTS["nan"] = b'{"a": NaN, "b": [Infinity, -Infinity], "c": "1e400", "d": 1e400}'

    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        if done == 0:
            return call("raw", name="nan")
        return calls(tc("c2", "pay", '{"amount": NaN}')) if done == 1 else text("done")

    run = await ground.run(plan)
    assert run.session["status"] == "completed"
    assert [d["outcome"] for d in run.of("tool.finished")] == ["ok", "error"]
    kept = {"a": "NaN", "b": ["Infinity", "-Infinity"], "c": "1e400", "d": "1e400"}
    assert run.of("tool.finished")[0]["output"] == kept
    assert not any(d.tool == "pay" and d.key.startswith(run.id) for d in ground.tools.received)
    await is_sound(ground, run)


@pytest.mark.req("CTX-1")
@pytest.mark.case("C148")
async def test_special_tokens_are_text(ground: Ground) -> None:
    words = "<|endoftext|> and <|im_start|>"
    RESULTS["special"] = json.dumps({"text": words}).encode()
    run = await ground.run(asks_raw("special", text(f"That is {words}.")), words=f"explain {words}")
    assert run.session["status"] == "completed"
    assert run.session["result"]["text"] == f"That is {words}."
    assert words in task_of(run.requests[0])
    assert words in results_so_far(run.requests[1])[0]


@pytest.mark.alone
@pytest.mark.req("CTX-1", "TOOL-12")
@pytest.mark.case("C149", "C097")
@pytest.mark.parametrize("what", ["a", "_", "base64", "text"])
async def test_long_runs_and_large_results(ground: Ground, what: str) -> None:
    """None holds the process up, none fills the window; 5 MB of text are a result like another."""
    RESULTS["long"] = {
        "a": b"a" * 1_000_000,
        "_": b"_" * 500_000,
        "base64": b"QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 60_000,
        "text": b"some words and some more " * 200_000,
    }[what]
    slowest = 0.0
    over = asyncio.Event()

    async def watch() -> None:
        nonlocal slowest
        times: list[float] = []
        while not over.is_set():
            began = time.monotonic()
            assert (await ground.client.http.get("/healthz")).status_code == 200
            times.append(time.monotonic() - began)
            await asyncio.sleep(0.005)
        slowest = max(times)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        began = time.monotonic()
        run = await ground.run(asks_raw("long"))
        took = time.monotonic() - began
        over.set()
    assert run.session["status"] == "completed"
    assert slowest < (1 if what == "text" else HEALTH_S)
    assert took < 3
    told = results_so_far(run.requests[1])[0]
    assert len(told) < 3000
    assert f"of {len(RESULTS['long']):,} characters" in told
    assert len(json.dumps(run.of("tool.finished"))) < 100_000


@pytest.mark.req("STATE-1")
@pytest.mark.case("C126")
async def test_two_hundred_steps_grow_in_a_straight_line(ground: Ground) -> None:
    RESULTS["ten"] = b"0123456789" * 1000

    def plan(request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        if done == 100 or "tools" not in request:
            return text("done")
        RESULTS[f"ten{done}"] = b"%04d567890" % done * 1000
        return calls(tc(f"c{done}", "raw", args(name=f"ten{done}")))

    limits = {"max_steps": 100, "token_budget": 2_000_000, "total_timeout_s": 600}
    first = await ground.run(plan, limits=limits, timeout_s=60)
    assert first.session["usage"]["tool_calls"] >= 99, first.session
    one = await _stored(ground, first.id)
    second = await ground.say(first.id, "again")
    two = await _stored(ground, second.id)
    raw = 2 * 100 * 10_000
    assert two < 5 * raw
    assert 1.5 * one < two < 2.5 * one


async def _stored(ground: Ground, session_id: str) -> int:
    statement = """
    select (select sum(length(payload) + length(hash)) from events where session_id = $1)
        + coalesce((select sum(length(payload)) from snapshots where session_id = $1), 0)
        + coalesce((select length(view) from sessions where id = $1), 0) as bytes
    """
    (row,) = await ground.stack.rows(statement, session_id)
    return int(row["bytes"])


@pytest.mark.req("SAFE-4", "API-1")
@pytest.mark.case("C180")
async def test_two_hundred_runs_each_with_its_own_word(ground: Ground) -> None:
    def plan(request: Body, n: int) -> Answer:
        word = task_of(request).split()[1]
        results = results_so_far(request)
        answer = text(f"It was {word}.") if results else call("echo", text=f"say {word}")
        return delayed((n * 37 % 50) / 1000, answer)

    ground.plans["secret"] = plan
    words = [f"word{n:04}x" for n in range(200)]
    async with asyncio.TaskGroup() as group:
        made = [group.create_task(ground.client.create(f"secret {word}")) for word in words]
    ids = [task.result() for task in made]
    for session_id, word in zip(ids, words, strict=True):
        session = await ground.client.settled(session_id)
        assert session["result"]["text"] == f"It was {word}."
        told = json.dumps(await ground.client.events(session_id)) + json.dumps(session)
        assert Counter(w in told for w in words) == {True: 1, False: 199}
        assert word in told
    bodies = [json.dumps(b) for b in ground.model.bodies if task_of(b).startswith("secret ")]
    assert len(bodies) == 400
    for body in bodies:
        assert sum(word in body for word in words) == 1
    said = {d.key.partition(":")[0]: d.arguments["text"] for d in ground.tools.received}
    assert [said[i] for i in ids] == [f"say {word}" for word in words]
