"""Bad requests against a running process: a problem each, or harmless success, and it goes on."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from tests.integration.ground import Ground, standing
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, text
from tests.scripted.history import Body
from tests.scripted.http import Request, Server, response

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

HEALTH_S = 0.2
TASK = b'{"task": "hello'
DEEP = 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made:
        made.plans["hello"] = lambda *_: text("Good day.")
        yield made


async def is_well(http: httpx2.AsyncClient) -> None:
    """The process answers as quickly as ever: the best of a few, for the machine is shared."""
    best = 9.0
    for _ in range(5):
        began = time.monotonic()
        assert (await http.get("/healthz")).status_code == httpx2.codes.OK
        best = min(best, time.monotonic() - began)
    assert best < HEALTH_S


def is_problem(answer: httpx2.Response, *statuses: int) -> None:
    assert answer.status_code in statuses, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].startswith("/problems/")
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"]
    assert "Traceback" not in answer.text


BODIES: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{", 400),
    "nothing": (b"", 400),
    "not UTF-8": (b'{"task": "\xff\xfe"}', 400),
    "a list": (b"[]", 422),
    "a number": (b"7", 422),
    "unknown field": (b'{"task": "hello", "colour": "red"}', 422),
    "wrong type": (b'{"task": 7}', 422),
    "no task": (b"{}", 422),
    "wrong limits": (b'{"task": "hello", "limits": {"max_steps": "many"}}', 422),
    "limit too high": (b'{"task": "hello", "limits": {"max_steps": 1000}}', 422),
    "unknown limit": (b'{"task": "hello", "limits": {"steps": 3}}', 422),
    "10 MB": (TASK + b"x" * 10_000_000 + b'"}', 413),
    "deep lists": (b'{"task": ' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400),
    "deep and escaped": (b'{"task": "\\u0000", "x": ' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
    "deep and broken": (b"[" * DEEP, 400),
    "NaN": (b'{"task": "hello", "limits": {"token_budget": NaN}}', 400),
    "NaN and escaped": (b'{"task": "\\u0000", "limits": {"max_cost": NaN}}', 400),
    "Infinity": (b'{"task": "hello", "limits": {"max_cost": Infinity}}', 400),
    "1e400": (b'{"task": "hello", "limits": {"total_timeout_s": 1e400}}', 400),
    "huge integer": (b'{"task": "hello", "limits": {"token_budget": %b}}' % (b"9" * 5000), 400),
    "unknown tool": (b'{"task": "hello", "tools": ["nothing"]}', 422),
    "unknown model": (b'{"task": "hello", "model": "gpt-none"}', 422),
    "not built": (b'{"task": "hello", "mode": "workflow"}', 422),
}


async def in_chunks(megabytes: int) -> AsyncIterator[bytes]:
    """Send a body whose length nobody was told."""
    yield TASK
    for _ in range(megabytes):
        yield b"x" * 1_000_000
    yield b'"}'


@pytest.mark.req("API-12")
@pytest.mark.case("C175")
async def test_bad_bodies(ground: Ground) -> None:
    http = ground.client.http
    for name, (body, status) in BODIES.items():
        answer = await http.post("/v1/sessions", content=body, headers=JSON)
        assert answer.status_code == status, (name, answer.text[:300])
        is_problem(answer, status)
        if answer.status_code == 422:
            assert answer.json().get("errors") or "not-supported" in answer.json()["type"], name
        await is_well(http)
    is_problem(await http.post("/v1/sessions", content=b"a=b", headers=FORM), 415)
    is_problem(await http.post("/v1/sessions", content=in_chunks(10), headers=JSON), 413)
    assert await ground.stack.rows("select from sessions") == []


JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.req("API-12", "API-2")
async def test_bad_ids_and_cursors(ground: Ground) -> None:
    http = ground.client.http
    made = await ground.client.create("hello")
    await ground.client.settled(made)
    for path in (
        *("/v1/sessions/ses_00000000000000000000000000", "/v1/sessions/nonsense"),
        *("/v1/sessions/%00", "/v1/sessions/" + "x" * 5000, "/v1/sessions/%F0%9F%92%A9"),
        *("/v1/sessions/nonsense/events", "/v1/sessions/nonsense/stream", "/v1/tools/nothing"),
        "/v1/nothing",
    ):
        is_problem(await http.get(path), 404)
    for verb, body in (
        ("messages", {"text": "x"}),
        *(("resume", {}), ("cancel", {}), ("close", {})),
        ("verifications", {"call_id": "t1_c1_1", "outcome": "happened"}),
    ):
        is_problem(await http.post(f"/v1/sessions/ses_x/{verb}", json=body), 404)
    for query in ("after=abc", "after=-1", "limit=0", "limit=501", "limit=x"):
        is_problem(await http.get(f"/v1/sessions/{made}/events?{query}"), 400)
    beyond = await http.get(f"/v1/sessions/{made}/events?after={10**30}")
    assert (beyond.status_code, beyond.json()["data"]) == (200, [])
    for query in ("after=%00", "limit=501", "status=asleep"):
        is_problem(await http.get(f"/v1/sessions?{query}"), 400)
    is_problem(await http.get(f"/v1/sessions/{made}/stream?after=abc"), 400)
    is_problem(await http.delete("/v1/tools"), 405)
    await is_well(http)


def tool(parameters: object, name: str = "bad") -> dict[str, object]:
    return {
        "name": name,
        "kind": "http",
        "description": "Says back what it is given. Use it for tests.",
        "parameters": parameters,
        "http": {"method": "POST", "url": "http://127.0.0.1:9/x"},
        "effect": "read",
    }


def schema(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def nested(depth: int) -> object:
    inner: object = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


@pytest.mark.req("TOOL-5", "API-12", "API-5")
@pytest.mark.case("C172", "C174", "C175")
async def test_bad_schemas(ground: Ground) -> None:
    http = ground.client.http
    hits: list[str] = []

    def canary(request: Request) -> list[bytes]:
        hits.append(request.path)
        return [response(200, b'{"type": "string"}')]

    async with Server(canary) as server:
        remote = {"$ref": f"{server.root}/x"}
        bad: list[object] = [
            schema(a={"type": "strin"}),
            schema(a={"type": 7}),
            {"type": "array"},
            schema(a={"pattern": "("}),
            schema(a={"minimum": "x"}),
            remote,
            schema(a=remote),
            schema(a={"items": {"anyOf": [remote]}}),
            {"$defs": {"b": remote}, **schema(a={"$ref": "#/$defs/b"})},
            schema(a=nested(90)),
            schema(**{f"p{n}": {"type": "string"} for n in range(10_000)}),
        ]
        for parameters in bad:
            answer = await http.post("/v1/tools", json=tool(parameters))
            assert answer.status_code != 201, str(parameters)[:200]
            is_problem(answer, 400, 413, 422)
            await is_well(http)
        for base in ({"output_schema": remote}, {"output_schema": {"type": "strin"}}):
            is_problem(await http.post("/v1/sessions", json={"task": "hello", **base}), 422)
        named = {"$schema": f"{server.root}/meta", **schema(a={"type": "string"})}
        await ground.client.post("/v1/tools", tool(named, "named"), expect=201)
        await http.post("/v1/tools/named/invoke", json={"arguments": {"a": "x"}})
        big = tool(schema(a={"enum": ["x" * 100] * 200_000}))
        is_problem(await http.post("/v1/tools", json=big), 413)
    assert hits == []
    assert {t["name"] for t in (await ground.client.get("/v1/tools"))["data"]}.isdisjoint({"bad"})


@pytest.mark.req("TOOL-2")
@pytest.mark.case("C174")
async def test_a_pattern_that_backtracks_costs_no_time(ground: Ground) -> None:
    http = ground.client.http
    hostile = "a" * 40 + "!"
    parameters = {
        **schema(text={"type": "string", "pattern": "^(a+)+$"}),
        "patternProperties": {"^(b+)+$": {"type": "string"}},
    }
    answer = await http.post("/v1/tools", json=tool(parameters, "backtracks"))
    if answer.status_code != httpx2.codes.CREATED:
        is_problem(answer, 422)
        return
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            body = {"arguments": {"text": hostile, "b" * 40 + "!": "x"}}
            group.create_task(http.post("/v1/tools/backtracks/invoke", json=body))
        group.create_task(is_well(http))
    assert time.monotonic() - began < 1 + 5 * HEALTH_S
    await http.delete("/v1/tools/backtracks")


@pytest.mark.req("TOOL-2", "API-5")
async def test_a_large_schema_is_checked_beside_the_loop(ground: Ground) -> None:
    """Its registration takes a second and more; a lease is not lost for it."""
    any_of: list[object] = [{"minLength": n} for n in range(30)]
    for width in (30, 10):
        any_of = [{"anyOf": any_of} for _ in range(width)]
    body = tool({"type": "object", "properties": {"a": {"anyOf": any_of}}})
    async with asyncio.TaskGroup() as group, httpx2.AsyncClient(timeout=60) as other:
        url = f"{ground.client.url}/v1/tools"
        registering = group.create_task(other.post(url, json={**body, "name": "large"}))
        while not registering.done():
            await is_well(ground.client.http)
    assert registering.result().status_code == httpx2.codes.CREATED
    arguments = {"arguments": {"a": "x"}}
    invoked = await ground.client.http.post("/v1/tools/large/invoke", json=arguments)
    assert invoked.status_code == httpx2.codes.OK
    await ground.client.http.delete("/v1/tools/large")


@pytest.mark.req("API-12")
async def test_what_is_not_built_yet_is_named_with_its_place(ground: Ground) -> None:
    unbuilt = {"cache_ttl_s": 5, "result": {"select": "a"}}
    for field, value in unbuilt.items():
        body = {**tool({"type": "object", "properties": {}}), field: value}
        answer = await ground.client.http.post("/v1/tools", json=body)
        is_problem(answer, 422)
        (fault,) = answer.json()["errors"]
        assert fault["pointer"].startswith(f"/{field}")


@pytest.mark.req("API-12", "STATE-5")
@pytest.mark.case("C116", "C118")
async def test_text_that_a_database_refuses_is_taken_with_a_mark(ground: Ground) -> None:
    seen: list[str] = []

    def plan(request: Body, _n: int) -> Answer:
        seen.append(request["messages"][-1]["content"])
        return text("Good day.")

    ground.plans["hello"] = plan
    for written in ("\\u0000", "\\ud83c", "\\udf78", "\\udf78\\ud83c"):
        body = b'{"task": "hello a%bb \\ud83c\\udf89"}' % written.encode()
        answer = await ground.client.http.post("/v1/sessions", content=body, headers=JSON)
        assert answer.status_code == httpx2.codes.CREATED, answer.text
        run = await ground.rest(answer.json()["id"])
        assert run.session["status"] == "completed"
        (started,) = run.of("turn.started")
        marks = "\N{REPLACEMENT CHARACTER}" * (written.count("\\u"))
        assert started["text"] == f"hello a{marks}b \N{PARTY POPPER}"
        assert seen[-1] == started["text"]
    assert len(seen) == 4
