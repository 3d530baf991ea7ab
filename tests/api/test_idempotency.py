"""`Idempotency-Key` on every POST that has an effect."""

import asyncio
import re
from dataclasses import replace

import httpx2
import pytest

from app.api.app import create_api
from app.api.wire.routing import Keeps, Operation
from app.core.ids import approval_id
from app.core.lifecycle import StopReason
from app.runtime.sessions.idempotency import Attempt
from tests.api.conftest import create
from tests.fakes.api_world import World
from tests.waiting import until

KEY = {"Idempotency-Key": "k-1"}
pytestmark = [pytest.mark.req("API-11"), pytest.mark.case("C068")]


async def test_create_once(client: httpx2.AsyncClient, world: World) -> None:
    async def post() -> httpx2.Response:
        return await client.post("/v1/sessions", json={"task": "a", "tools": []}, headers=KEY)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(post()) for _ in range(10)]
    answers = [task.result() for task in tasks]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 9
    assert len(world.store.rows) == 1
    spaced = await client.post(
        "/v1/sessions",
        content=b'{ "tools": [],  "task": "a" }',
        headers={**KEY, "content-type": "application/json"},
    )
    assert spaced.content == answers[0].content
    other = await client.post("/v1/sessions", json={"task": "b"}, headers=KEY)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


async def test_message_once(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id)
    path = f"/v1/sessions/{session_id}/messages"
    first = await client.post(path, json={"text": "more"}, headers=KEY)
    again = await client.post(path, json={"text": "more"}, headers=KEY)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.content == again.content
    assert len(world.store.inboxes[session_id]) == 1
    other = await create(client)
    elsewhere = await client.post(
        f"/v1/sessions/{other}/messages", json={"text": "more"}, headers=KEY
    )
    assert elsewhere.status_code == 422


async def test_resume_once(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    await world.finish(session_id, reason=StopReason.MAX_STEPS)
    path, body = f"/v1/sessions/{session_id}/resume", {"limits": {"max_steps": 20}}
    first = await client.post(path, json=body, headers=KEY)
    again = await client.post(path, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (202, 202)
    assert len(world.store.inboxes[session_id]) == 1


async def test_invoke_once(client: httpx2.AsyncClient, world: World) -> None:
    path, body = "/v1/tools/calculate/invoke", {"arguments": {"expression": "1"}}
    world.tool_port.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(client.post(path, json=body, headers=KEY))
        await until(lambda: bool(world.tool_port.requests))
        meanwhile = await client.post(path, json=body, headers=KEY)
        world.tool_port.gate.set()
    assert meanwhile.status_code == 409
    assert meanwhile.json()["type"] == "/problems/idempotency-key-in-flight"
    assert meanwhile.headers["retry-after"] == "1"
    again = await client.post(path, json=body, headers=KEY)
    assert again.content == first.result().content
    assert len(world.tool_port.requests) == 1


async def test_a_failed_request_is_over_too(client: httpx2.AsyncClient, world: World) -> None:
    path = "/v1/tools/calculate/invoke"
    body: dict[str, object] = {"arguments": {}}
    world.tool_port.breaks = ZeroDivisionError()
    first = await client.post(path, json=body, headers=KEY)
    again = await client.post(path, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (500, 500)
    assert first.content == again.content
    assert first.headers["content-type"] == again.headers["content-type"]
    assert len(world.tool_port.requests) == 1


async def test_register_once(client: httpx2.AsyncClient) -> None:
    first = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    again = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x" * 256,
        "a\tb",
        "é",
        "a b",
        "a, b",
        '"',
        '""',
        '"a',
        'a"',
        '"a" b',
        '"a\\b"',
        '"é"',
        '"a"; B=1',
        f'"{"x" * 256}"',
    ],
)
async def test_keys_that_are_none(client: httpx2.AsyncClient, world: World, key: str) -> None:
    answer = await client.post(
        "/v1/sessions", json={"task": "a"}, headers=[(b"Idempotency-Key", key.encode("latin-1"))]
    )
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-parameter")
    assert world.store.rows == {}


async def test_two_keys_are_none(client: httpx2.AsyncClient, world: World) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    answer = await client.post("/v1/sessions", json={"task": "a"}, headers=headers)
    assert answer.status_code == 400
    assert world.store.rows == {}


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("k-1", "k-1"),
        ('"k-1"', "k-1"),
        ('"k-1";v=1;w="a b"', "k-1"),
        (' "k-1" ', "k-1"),
        (r'"a \"b\" \\ c"', r'a "b" \ c'),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        (f'"{"x" * 255}"', "x" * 255),
    ],
)
async def test_a_key_is_a_string_or_a_bare_word(
    client: httpx2.AsyncClient, world: World, sent: str, key: str
) -> None:
    answer = await client.post(
        "/v1/sessions", json={"task": "a"}, headers={"Idempotency-Key": sent}
    )
    assert answer.status_code == 201, answer.text
    assert list(world.store.records) == [("default", key)]


@pytest.mark.parametrize("verb", ["cancel", "close"])
async def test_cancel_and_close_once(client: httpx2.AsyncClient, world: World, verb: str) -> None:
    """The answer is the first one, though the session has gone on since."""
    session_id = await create(client)
    await world.finish(session_id)
    path = f"/v1/sessions/{session_id}/{verb}"
    if verb == "close":
        await world.close(session_id)
    first = await client.post(path, headers=KEY)
    again = await client.post(path, headers=KEY)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    other = await create(client)
    reused = await client.post(f"/v1/sessions/{other}/{verb}", headers=KEY)
    assert reused.json()["type"] == "/problems/idempotency-key-reused"


async def _left_in_flight(client: httpx2.AsyncClient, world: World, path: str) -> httpx2.Response:
    """Answer a request whose key was marked by a process that died since."""
    attempt = Attempt.of("default", "k-1", f"POST {path}", b"{}" if "invoke" in path else b"")
    mark = attempt.record(world.services.keyring, 0, b"", None)
    await world.store.begin_remembering(mark)
    return await client.post(path, json={} if "invoke" in path else None, headers=KEY)


async def test_a_mark_left_by_a_crash_is_taken_over_by_what_may_be_repeated(
    client: httpx2.AsyncClient, world: World
) -> None:
    session_id = await create(client)
    await world.finish(session_id)
    path = f"/v1/sessions/{session_id}/cancel"
    assert (await _left_in_flight(client, world, path)).status_code == 409
    world.store.marks_are_old = True
    other = await create(client)
    elsewhere = await client.post(f"/v1/sessions/{other}/cancel", headers=KEY)
    assert elsewhere.status_code == 422
    assert (await client.post(path, headers=KEY)).status_code == 200
    again = await client.post(path, headers=KEY)
    assert again.headers["idempotency-replayed"] == "true"


async def test_what_a_crash_cut_off_is_told_to_be_so_where_nobody_knows(
    client: httpx2.AsyncClient, world: World
) -> None:
    """The answer is final: nothing is sent under this key, and nobody is told to wait for it."""
    await client.post("/v1/tools", json={"name": "pay"})
    path = "/v1/tools/pay/invoke"
    assert _type(await _left_in_flight(client, world, path)) == "idempotency-key-in-flight"
    world.store.marks_are_old = True
    answers = [await client.post(path, json={}, headers=KEY) for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, _type(answer)) == (409, "idempotency-key-cut-off")
        assert "retry-after" not in answer.headers
    assert answers[0].content == answers[1].content
    assert answers[1].headers["idempotency-replayed"] == "true"
    other = await client.post(path, json={"arguments": {"a": 1}}, headers=KEY)
    assert _type(other) == "idempotency-key-reused"
    assert world.tool_port.requests == []


async def test_a_call_that_only_reads_is_made_again_after_a_crash(
    client: httpx2.AsyncClient, world: World
) -> None:
    await client.post("/v1/tools", json={"name": "look", "effect": "read"})
    path = "/v1/tools/look/invoke"
    assert (await _left_in_flight(client, world, path)).status_code == 409
    world.store.marks_are_old = True
    assert (await client.post(path, json={}, headers=KEY)).status_code == 200
    assert len(world.tool_port.requests) == 1


def _type(answer: httpx2.Response) -> str:
    return str(answer.json()["type"]).removeprefix("/problems/")


async def test_a_refusal_leaves_the_key_free(client: httpx2.AsyncClient) -> None:
    path = "/v1/tools/later/invoke"
    refused = await client.post(path, json={}, headers=KEY)
    assert refused.status_code == 404
    assert (await client.post("/v1/tools", json={"name": "later"})).status_code == 201
    assert (await client.post(path, json={}, headers=KEY)).status_code == 200


async def test_the_answer_again_points_where_the_first_one_did(client: httpx2.AsyncClient) -> None:
    first = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    again = await client.post("/v1/tools", json={"name": "t"}, headers=KEY)
    assert first.headers["location"] == again.headers["location"] == "/v1/tools/t"


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, identity"])
async def test_an_encoded_body_is_not_taken(client: httpx2.AsyncClient, coding: str) -> None:
    answer = await client.post(
        "/v1/sessions", json={"task": "a"}, headers={"Content-Encoding": coding}
    )
    assert answer.status_code == 415
    assert answer.json()["type"] == "/problems/unsupported-media-type"


# --- every operation


POSTS: dict[str, Operation] = {
    op.id: op for op in create_api(World().services, "1").operations if op.method == "POST"
}
ENDPOINTS = {
    "createSession": ("/v1/sessions", {"task": "a"}, {"task": "b"}),
    "sendMessage": ("/v1/sessions/{done}/messages", {"text": "a"}, {"text": "b"}),
    "resumeSession": (
        "/v1/sessions/{stopped}/resume",
        {"limits": {"max_steps": 20}},
        {"limits": {"max_steps": 21}},
    ),
    "verifyCall": (
        "/v1/sessions/{doubt}/verifications",
        {"call_id": "t1_c1_1", "outcome": "happened"},
        {"call_id": "t1_c1_1", "outcome": "did_not_happen"},
    ),
    "sendToolResult": (
        "/v1/sessions/{handed}/tool_results",
        {"call_id": "t1_c1_1", "output": 1},
        {"call_id": "t1_c1_1", "output": 2},
    ),
    "forkSession": (
        "/v1/sessions/{done}/fork",
        {"at_seq": 1, "task": "a"},
        {"at_seq": 1, "task": "b"},
    ),
    "fireSchedule": ("/v1/schedules/{schedule}/fire", {}, None),
    "decideApproval": ("/v1/approvals/{approval}", {"decision": "deny"}, {"decision": "approve"}),
}
"""What keeps its key itself, with two different requests that are accepted, where there are two."""


@pytest.mark.parametrize("name", POSTS)
def test_every_post_documents_the_key(name: str) -> None:
    document = create_api(World().services, "1").openapi()
    paths = document["paths"]
    assert isinstance(paths, dict)
    operation = paths[POSTS[name].path]["post"]
    assert any(p["name"] == "Idempotency-Key" for p in operation["parameters"])
    assert {"409", "422"} <= set(operation["responses"])


@pytest.mark.parametrize("name", [n for n, op in POSTS.items() if op.keeps is not Keeps.ENDPOINT])
async def test_every_post_honours_the_key(
    client: httpx2.AsyncClient, world: World, name: str
) -> None:
    """Whatever the operation does: what its key stands for is answered before anything else."""
    path = re.sub(r"\{[^}]*\}", "ses_0", POSTS[name].path)
    bad = await client.post(path, json={}, headers={"Idempotency-Key": '"'})
    assert (bad.status_code, bad.json()["type"]) == (400, "/problems/invalid-parameter")
    attempt = Attempt.of("default", "k-1", f"POST {path}", b"{}")
    first = attempt.record(world.services.keyring, 200, b'{"first":1}', None)
    world.store.records["default", "k-1"] = first
    again = await client.post(path, json={}, headers=KEY)
    assert (again.status_code, again.json()) == (200, {"first": 1})
    other = await client.post(path, json={"other": 1}, headers=KEY)
    assert other.json()["type"] == "/problems/idempotency-key-reused"
    world.store.records["default", "k-1"] = replace(first, status=0)
    in_flight = await client.post(path, json={}, headers=KEY)
    assert (in_flight.status_code, in_flight.json()["type"]) == (
        409,
        "/problems/idempotency-key-in-flight",
    )


def test_whoever_keeps_its_key_itself_is_listed_here() -> None:
    kept = {name for name, op in POSTS.items() if op.keeps is Keeps.ENDPOINT}
    assert kept == set(ENDPOINTS), "add two requests to ENDPOINTS, or leave the key to the route"


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_whoever_keeps_its_key_itself_does(
    client: httpx2.AsyncClient, world: World, name: str
) -> None:
    kinds = ("done", "stopped", "doubt", "handed", "asked")
    ids = {kind: await create(client) for kind in kinds}
    await world.finish(ids["done"])
    await world.finish(ids["stopped"], reason=StopReason.MAX_STEPS)
    world.doubt(ids["doubt"], "t1_c1_1")
    world.hand_over(ids["handed"], "t1_c1_1")
    world.ask(ids["asked"], "t1_c1_1")
    ids["approval"] = approval_id(ids["asked"], "t1_c1_1")
    schedule = {"cron": "0 9 * * *", "session": {"task": "a"}}
    ids["schedule"] = (await client.post("/v1/schedules", json=schedule)).json()["id"]
    template, body, other = ENDPOINTS[name]
    path = template.format(**ids)
    bad = await client.post(path, json=body, headers={"Idempotency-Key": '"'})
    assert bad.status_code == 400
    first = await client.post(path, json=body, headers=KEY)
    assert first.is_success, first.text
    again = await client.post(path, json=body, headers={"Idempotency-Key": '"k-1"'})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    if other is not None:
        reused = await client.post(path, json=other, headers=KEY)
        assert reused.json()["type"] == "/problems/idempotency-key-reused"
    seen = world.store.records["default", "k-1"]
    world.store.records["default", "k-1"] = replace(seen, status=0)
    assert (await client.post(path, json=body, headers=KEY)).status_code == 409
